"use strict";
(() => {
  const data = JSON.parse(document.getElementById("digest").textContent);
  const kinds = data.kinds.map((_, j) => j);
  const figures = [];
  let focus = null; // the kind that all figures bring out, if any

  // ---------------------------------------------------------------- small tools

  const byId = (id) => document.getElementById(id);
  const colour = (j) => (j < 8 ? `var(--kind-${j})` : `hsl(${(j * 137.5) % 360} 55% 52%)`);
  const faded = (j) => (focus === null || focus === j ? 1 : 0.12);
  const count = (value) => Math.round(value).toLocaleString("en-US");
  const percent = (value) => {
    const digits = value > 0 && value < 0.1 ? 1 : value > 0.999 && value < 1 ? 2 : 0;
    return `${(100 * value).toFixed(digits)} %`;
  };
  const number = (value, digits = 3) => {
    if (value === 0) return "0";
    const size = Math.abs(value);
    const text = size >= 1e6 || size < 1e-4 ? value.toExponential(digits - 1) : String(Number(value.toPrecision(digits)));
    return text.replace("-", "\u2212");
  };

  function add(parent, tag, attributes = {}, text = null) {
    const inside = parent.namespaceURI === "http://www.w3.org/2000/svg" || tag === "svg";
    const node = inside ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== null) node.textContent = text;
    parent.append(node);
    return node;
  }

  const tip = document.querySelector(".tip");
  function tell(node, words) {
    const show = (event) => {
      tip.textContent = words;
      const box = tip.getBoundingClientRect();
      const x = Math.min(event.clientX + 14, innerWidth - box.width - 8);
      const y = event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18;
      tip.style.left = `${Math.max(8, x)}px`;
      tip.style.top = `${y}px`;
      tip.classList.add("on");
    };
    node.addEventListener("pointerenter", show);
    node.addEventListener("pointermove", show);
    node.addEventListener("pointerdown", show);
    node.addEventListener("pointerleave", () => tip.classList.remove("on"));
    node.setAttribute("data-tip", words);
  }
  addEventListener("scroll", () => tip.classList.remove("on"), { passive: true });

  function ticks(low, high, wanted) {
    const raw = (high - low) / wanted || 1;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i += 1) found.push(i * step || 0);
    // As many decimals as the step has, so that neighbours differ and zeros do not pile up.
    const decimals = Math.max(0, Math.min(12, -Math.floor(Math.log10(step) + 1e-9) + (String(step / power).includes(".") ? 1 : 0)));
    return found.map((value) => {
      const size = Math.max(Math.abs(low), Math.abs(high));
      const label = size >= 1e6 ? value.toExponential(2) : size < 1e-3 ? value.toExponential(1) : value.toFixed(decimals);
      return [value, Math.abs(value) < 1e-6 * step ? "0" : label.replace("-", "\u2212")];
    });
  }

  const linear = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);

  function canvas(place, width, height, label) {
    return add(place, "svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  }

  // A figure draws itself again whenever its width, the kind in focus or one of its controls changes.
  function figure(id, draw) {
    const place = byId(id);
    if (!place) return;
    const again = () => {
      const width = Math.floor(place.clientWidth);
      if (width < 40) return;
      place.replaceChildren();
      draw(place, width);
    };
    figures.push(again);
    let last = 0;
    new ResizeObserver(() => {
      if (Math.abs(place.clientWidth - last) < 2) return;
      last = place.clientWidth;
      again();
    }).observe(place);
    const controls = document.querySelector(`.controls[data-for="${id}"]`);
    for (const control of controls ? controls.querySelectorAll("select, input") : []) control.addEventListener("input", again);
    for (const button of controls ? controls.querySelectorAll("button") : []) {
      button.addEventListener("click", () => {
        for (const other of controls.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
        again();
      });
    }
  }

  const chosen = (id) => {
    const controls = document.querySelector(`.controls[data-for="${id}"]`);
    return controls?.querySelector('button[aria-pressed="true"]')?.dataset.value ?? null;
  };

  function bring(kind) {
    focus = kind;
    for (const card of document.querySelectorAll(".kind")) card.setAttribute("aria-pressed", String(Number(card.dataset.kind) === kind));
    for (const again of figures) again();
    const only = byId("only");
    if (only) {
      only.value = kind === null ? "" : String(kind);
      only.dispatchEvent(new Event("input"));
    }
  }

  // ---------------------------------------------------------------- coefficients

  const marks = [
    (svg, x, y, style) => add(svg, "circle", { cx: x, cy: y, r: 4.6, ...style }),
    (svg, x, y, style) => add(svg, "rect", { x: x - 4.1, y: y - 4.1, width: 8.2, height: 8.2, rx: 1, ...style }),
    (svg, x, y, style) => add(svg, "path", { d: `M${x} ${y - 5.6}L${x + 5.6} ${y}L${x} ${y + 5.6}L${x - 5.6} ${y}Z`, ...style }),
    (svg, x, y, style) => add(svg, "path", { d: `M${x} ${y - 5.2}L${x + 5.2} ${y + 4.2}L${x - 5.2} ${y + 4.2}Z`, ...style }),
  ];

  figure("coefficients", (place, width) => {
    const { spread, order, intercept, level, deviations } = data.coefficients;
    // The usual level is one more row: in units of the target, as effects are.
    const features = [...data.coefficients.features, ...(level ? [level.name] : [])];
    const values = data.coefficients.values.map((row, j) => [...row, ...(level ? [level.values[j]] : [])]);
    const errors = data.coefficients.errors?.map((row, j) => [...row, ...(level ? [level.errors[j]] : [])]);
    const common = byId("units").value === "common";
    const sorting = byId("order").value;
    const all = byId("all")?.checked;
    const slopes = data.coefficients.features.length - (intercept ? 1 : 0);
    const strength = (f) => Math.max(...kinds.map((j) => Math.abs(values[j][f]) * (spread ? spread[f] : 1)));
    let shown = sorting === "table" ? [...Array(slopes).keys()] : [...order];
    if (sorting === "strongest") shown.sort((a, b) => strength(b) - strength(a));
    if (!all) shown = shown.slice(0, 12);
    if (common && spread && level) shown.push(slopes + 1);
    else if (intercept && !(common && spread)) shown.push(slopes); // it has no usual change

    const half = (j, f) => (errors ? 1.96 * errors[j][f] : 0);
    // On its own scale a row runs from minus to plus its largest value; else all rows share one.
    const unit = (f) => (common ? (spread?.[f] ?? 1) : 1 / Math.max(1e-300, ...kinds.map((j) => Math.abs(values[j][f]) + Math.max(half(j, f), 1.2816 * (deviations?.[j][f] ?? 0)))));
    let low = 0;
    let high = 0;
    for (const f of shown) {
      for (const j of kinds) {
        const reach = Math.max(half(j, f), 1.2816 * (deviations?.[j][f] ?? 0));
        low = Math.min(low, (values[j][f] - reach) * unit(f));
        high = Math.max(high, (values[j][f] + reach) * unit(f));
      }
    }
    const pad = 0.04 * (high - low || 1);
    const longest = Math.max(...shown.map((f) => features[f].length));
    const left = Math.min(Math.max(60, 14 + 7.8 * longest), width * 0.36);
    const gap = Math.max(8, 13 - kinds.length);
    const row = Math.max(30, kinds.length * gap + 14);
    const each = 74;
    const abreast = Math.max(1, Math.floor((width - left) / each));
    const top = kinds.length > 1 ? 12 + 20 * Math.ceil(kinds.length / abreast) : 8;
    const height = top + shown.length * row + (common ? 44 : 24);
    const x = linear(low - pad, high + pad, left, width - 10);
    const svg = canvas(place, width, height, "Coefficients of each kind, with intervals");
    const floor = top + shown.length * row;
    for (const j of kinds.length > 1 ? kinds : []) {
      const [at, y] = [left + (j % abreast) * each + 6, 10 + 20 * Math.floor(j / abreast)];
      const key = add(svg, "g", { opacity: faded(j), style: "cursor:pointer" });
      marks[j % marks.length](key, at, y, { fill: colour(j) });
      add(key, "text", { x: at + 11, y: y + 4 }, `Kind ${j}`);
      key.addEventListener("click", () => bring(focus === j ? null : j));
    }
    if (common) {
      for (const [value, label] of ticks(low - pad, high + pad, width < 500 ? 4 : 7)) {
        add(svg, "line", { class: "grid", x1: x(value), x2: x(value), y1: top, y2: floor });
        add(svg, "text", { x: x(value), y: floor + 17, "text-anchor": "middle" }, label);
      }
      const moved = `change of the ${data.coefficients.moves}`;
      const change = width < 500 ? moved : `${moved} for a usual change of the column`;
      const what = spread ? change : "coefficient";
      add(svg, "text", { x: (left + width) / 2, y: floor + 36, "text-anchor": "middle" }, what);
    } else {
      add(svg, "text", { x: x(0), y: floor + 17, "text-anchor": "middle" }, "0");
    }
    add(svg, "line", { class: "axis", x1: x(0), x2: x(0), y1: top, y2: floor });
    shown.forEach((f, i) => {
      const middle = top + (i + 0.5) * row;
      if (i % 2) add(svg, "rect", { class: "band", x: 0, width, y: top + i * row, height: row });
      const room = Math.floor((left - 12) / 7.8);
      const name = features[f].length > room ? `${features[f].slice(0, room - 1)}\u2026` : features[f];
      tell(add(svg, "text", { class: "strong", x: left - 10, y: middle + 4, "text-anchor": "end" }, name), features[f]);
    });
    shown.forEach((f, i) => {
      for (const j of kinds) {
        const y = top + (i + 0.5) * row + (j - (kinds.length - 1) / 2) * gap;
        const group = add(svg, "g", { opacity: faded(j), class: "coefficient", "data-kind": j, "data-feature": features[f] });
        const near = (values[j][f] - half(j, f)) * unit(f);
        const far = (values[j][f] + half(j, f)) * unit(f);
        const own = 1.2816 * (deviations?.[j][f] ?? 0); // on each side of 80 % of the clients
        if (own) {
          const [first, last] = [x(Math.max(low - pad, (values[j][f] - own) * unit(f))), x(Math.min(high + pad, (values[j][f] + own) * unit(f)))];
          add(group, "rect", { class: "own", x: first, width: Math.max(0, last - first), y: y - gap / 2 + 1, height: gap - 2, rx: 2, fill: colour(j), opacity: 0.28 });
        }
        if (errors) add(group, "line", { x1: x(near), x2: x(far), y1: y, y2: y, stroke: colour(j), "stroke-width": 2.4, "stroke-linecap": "round" });
        marks[j % marks.length](group, x(values[j][f] * unit(f)), y, { fill: colour(j), stroke: "var(--card)", "stroke-width": 1 });
        add(group, "rect", { class: "hit", x: Math.min(x(near), x(far)) - 9, width: Math.abs(x(far) - x(near)) + 18, y: y - gap / 2, height: gap });
        const interval = errors ? `\n95 % interval ${number(values[j][f] - half(j, f))} to ${number(values[j][f] + half(j, f))}` : "";
        const clients = own ? `\n80 % of its clients: ${number(values[j][f] - own)} to ${number(values[j][f] + own)}` : "";
        const effect = spread && f < slopes ? `\n${number(values[j][f] * spread[f])} for a usual change (${number(spread[f])})` : "";
        if (f > slopes) tell(group, `Kind ${j}, ${features[f]}: ${number(level.raw[j], 5)}\n${number(values[j][f])} from the mean of all`);
        else tell(group, `Kind ${j}, ${features[f]}: ${number(values[j][f], 5)}${interval}${clients}${effect}`);
      }
    });
  });

  // ---------------------------------------------------------------- bars

  // The frame of a bar chart: a column for each label, from 0 up to high.
  function columns(place, width, labels, high, what, { level = (value) => value, marks = null, format = count, name = null } = {}) {
    const [left, right, top, height] = [52, width - 8, 10, 240];
    const floor = height - 42;
    const svg = canvas(place, width, height, what);
    const y = linear(0, level(high), floor, top);
    const whole = format === count;
    for (const value of marks ?? ticks(0, high, 4).map(([tick]) => tick).filter((tick) => !whole || Number.isInteger(tick))) {
      add(svg, "line", { class: "grid", x1: left, x2: right, y1: y(level(value)), y2: y(level(value)) });
      add(svg, "text", { x: left - 7, y: y(level(value)) + 4, "text-anchor": "end" }, format(value));
    }
    const step = (right - left) / labels.length;
    const gap = Math.min(2, step * 0.1);
    const every = Math.ceil((labels.length * 46) / Math.max(right - left, 1));
    labels.forEach((label, b) => {
      const middle = left + (b + (name ? 0 : 0.5)) * step;
      if (b % every === 0 && (!name || middle < right - 50)) add(svg, "text", { x: middle, y: floor + 17, "text-anchor": "middle" }, name ? name(b) : label);
    });
    if (name) add(svg, "text", { x: right, y: floor + 17, "text-anchor": "end" }, name(labels.length));
    add(svg, "line", { class: "axis", x1: left, x2: right, y1: floor, y2: floor });
    add(svg, "text", { x: (left + right) / 2, y: height - 4, "text-anchor": "middle" }, what);
    return {
      bar: (b, low, top, style) => add(svg, "rect", { class: "bar", x: left + b * step + gap, width: Math.max(1, step - 2 * gap), y: y(top), height: Math.max(0, y(low) - y(top)), ...style }),
      tell: (b, words) => tell(add(svg, "rect", { class: "hit", x: left + b * step, width: step, y: top, height: floor - top }), words),
    };
  }

  // Stacked bars of clients, counts[kind][column]: as they are, as shares of a column, or on a logarithmic scale.
  function stacked(place, width, labels, counts, what, view, name = null) {
    const totals = labels.map((_, b) => kinds.reduce((sum, j) => sum + counts[j][b], 0));
    const high = view === "shares" ? 1 : Math.max(1, ...totals);
    const level = view === "log" ? (value) => Math.log10(1 + value) : (value) => value;
    const powers = Array.from({ length: Math.floor(Math.log10(high) + 1e-9) + 1 }, (_, power) => 10 ** power);
    const chart = columns(place, width, labels, high, what, { level, marks: view === "log" ? powers : null, format: view === "shares" ? percent : count, name });
    labels.forEach((label, b) => {
      const height = view === "shares" ? 1 : level(totals[b]);
      let base = 0;
      for (const j of kinds) {
        const part = totals[b] ? (counts[j][b] / totals[b]) * height : 0;
        if (part > 0) chart.bar(b, base, base + part, { fill: colour(j), opacity: faded(j), "data-kind": j });
        base += part;
      }
      const lines = kinds.filter((j) => counts[j][b]).map((j) => `kind ${j}: ${count(counts[j][b])}`);
      chart.tell(b, `${what} ${label}: ${count(totals[b])} clients\n${lines.join("\n")}`);
    });
  }

  figure("certainty", (place, width) => {
    const { edges, counts } = data.certainty;
    const labels = edges.slice(0, -1).map((edge, b) => `${edge.toFixed(2)} to ${edges[b + 1].toFixed(2)}`);
    stacked(place, width, labels, counts, "probability of a client's kind", chosen("certainty"), (b) => edges[b].toFixed(2));
  });

  figure("sizes", (place, width) => {
    const { labels, counts, sure } = data.sizes;
    if (chosen("sizes") !== "sure") return stacked(place, width, labels, counts, "rows of a client", chosen("sizes"));
    const chart = columns(place, width, labels, 1, "rows of a client", { format: percent });
    labels.forEach((label, b) => {
      chart.bar(b, 0, sure[b], { fill: "var(--accent)" });
      chart.tell(b, `${label} rows: ${percent(sure[b])} of clients are placed with 0.9 or more`);
    });
    return undefined;
  });

  // ---------------------------------------------------------------- lines

  function line(place, width, points, { what, below, format, log = false, bands = [], clip = false }) {
    const transform = (value) => (log ? Math.log10(Math.max(value, 1e-16)) : value);
    const ys = points.map((point) => transform(point.y));
    let [low, high] = [Math.min(...ys), Math.max(...ys)];
    // A few points far below would press all others together: they are drawn at the floor, hollow.
    const quarter = [...ys].sort((a, b) => a - b)[Math.floor(ys.length / 4)];
    if (clip && high > quarter) low = Math.max(low, high - 3 * (high - quarter));
    if (high - low < 1e-9 * Math.max(1, Math.abs(high))) [low, high] = [low - 0.5, high + 0.5];
    const pad = 0.06 * (high - low);
    const labels = ticks(low - pad, high + pad, 4).map(([value, label]) => [value, log ? `1e${label}` : label]).filter(([value]) => !log || Number.isInteger(value));
    const left = 16 + 7 * Math.max(...labels.map(([, label]) => label.length), 3);
    const [right, top, height] = [width - 14, bands.length ? 26 : 12, 250];
    const floor = height - 42;
    const svg = canvas(place, width, height, what);
    const xs = points.map((point) => point.x);
    const first = Math.min(...xs);
    const last = Math.max(...xs, first + 1);
    const x = linear(first, last, left + 8, right - 4);
    const y = linear(low - pad, high + pad, floor, top);
    bands.forEach((band, b) => {
      const from = x(Math.max(first, band.from - 0.5));
      const to = x(Math.min(last, band.to + 0.5));
      if (b % 2 === 0) add(svg, "rect", { class: "band", x: from, width: Math.max(0, to - from), y: top - 18, height: floor - top + 18 });
      if (to - from > 6.6 * band.name.length) add(svg, "text", { x: (from + to) / 2, y: top - 5, "text-anchor": "middle" }, band.name);
    });
    for (const [value, label] of labels) {
      add(svg, "line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) });
      add(svg, "text", { x: left - 7, y: y(value) + 4, "text-anchor": "end" }, label);
    }
    for (const [value] of ticks(first, last, Math.min(last - first, width / 70))) {
      if (Number.isInteger(value)) add(svg, "text", { x: x(value), y: floor + 17, "text-anchor": "middle" }, String(value));
    }
    const at = (i) => y(Math.max(ys[i], low - pad));
    let path = "";
    points.forEach((point, i) => {
      path += `${i && !point.begins ? "L" : "M"}${x(point.x)} ${at(i)}`;
    });
    add(svg, "path", { class: "line", d: path });
    if (ys.some((value) => value < low - pad)) add(svg, "text", { x: right, y: floor - 10, "text-anchor": "end" }, "hollow: further down");
    points.forEach((point, i) => {
      const dot = add(svg, "circle", { cx: x(point.x), cy: at(i), r: point.chosen ? 7 : 4, fill: point.hollow || ys[i] < low - pad ? "var(--card)" : "var(--accent)", stroke: "var(--accent)", "stroke-width": 1.6, class: "point" });
      tell(dot, format(point));
      if (point.chosen) {
        add(svg, "line", { class: "axis", x1: x(point.x), x2: x(point.x), y1: at(i) + 8, y2: floor, "stroke-dasharray": "3 3" });
        const side = x(point.x) > width * 0.8 ? ["end", -7] : ["start", 7];
        add(svg, "text", { class: "strong", x: x(point.x) + side[1], y: floor - 8, "text-anchor": side[0] }, "chosen");
      }
    });
    add(svg, "line", { class: "axis", x1: left, x2: right, y1: floor, y2: floor });
    add(svg, "text", { x: (left + right) / 2, y: height - 4, "text-anchor": "middle" }, below);
  }

  figure("choice", (place, width) => {
    const chosenOne = data.kinds.length;
    const points = data.choice.map((entry) => ({ x: entry.n_clusters, y: entry.bic, chosen: entry.n_clusters === chosenOne, hollow: !entry.sound, entry }));
    const format = ({ entry }) => `${entry.n_clusters} ${entry.n_clusters === 1 ? "kind" : "kinds"}\nBIC ${number(entry.bic, 7)}\nlog likelihood ${number(entry.likelihood, 7)}${entry.reason ? `\n${entry.reason}` : ""}`;
    line(place, width, points, { what: "BIC by number of kinds", below: "number of kinds", format });
  });

  figure("convergence", (place, width) => {
    const view = chosen("convergence");
    const value = (record) => (view === "movement" ? record.movement : view === "loss" ? record.loss : record.likelihood === undefined ? undefined : record.likelihood / record.rows);
    const points = data.trace.map((record) => ({ x: record.exchanges, y: value(record), begins: record.round === 1, record })).filter((point) => point.y !== undefined && (view !== "movement" || point.y > 0));
    const bands = [];
    for (const record of data.trace) {
      const band = bands.at(-1);
      if (band?.name === record.name) band.to = record.exchanges;
      else bands.push({ name: record.name, from: record.exchanges, to: record.exchanges });
    }
    if (!points.length) return add(place, "p", { class: "caption" }, "This run recorded none.");
    const names = { movement: "movement of the models", loss: "mean loss of a row", likelihood: "log likelihood per row" };
    const format = ({ record, y }) => `${record.name}, exchange ${record.exchanges}\n${names[view]} ${number(y, 6)}${record.candidates ? `\n${record.candidates} candidates` : ""}${record.rows ? `\n${count(record.rows)} rows asked` : ""}`;
    return line(place, width, points, { what: names[view], below: "exchange", format, log: view === "movement", bands, clip: view === "likelihood" });
  });

  // ---------------------------------------------------------------- residuals

  figure("residuals", (place, width) => {
    const { edges, counts } = data.residuals;
    const shown = focus === null ? kinds : [focus];
    const columns = Math.max(1, Math.min(shown.length, Math.floor(width / 150), 4));
    const [cell, height] = [width / columns, 150];
    const rows = Math.ceil(shown.length / columns);
    const svg = canvas(place, width, rows * (height + 26), "Residuals of each kind, in units of its noise");
    const bin = edges[1] - edges[0];
    const bell = (z) => Math.exp(-0.5 * z * z) / Math.sqrt(2 * Math.PI);
    shown.forEach((j, i) => {
      const [x0, y0] = [(i % columns) * cell, Math.floor(i / columns) * (height + 26)];
      const total = Math.max(1e-9, counts[j].reduce((a, b) => a + b, 0));
      const density = counts[j].map((c) => c / total / bin);
      const x = linear(-5, 5, x0 + 6, x0 + cell - 10);
      const y = linear(0, Math.max(0.42, ...density), y0 + height, y0 + 22);
      add(svg, "text", { class: "strong", x: x0 + 6, y: y0 + 14 }, `Kind ${j}`);
      density.forEach((value, b) => {
        const bar = add(svg, "rect", { class: "bar", x: x(edges[b]) + 0.4, width: Math.max(0.6, x(edges[b + 1]) - x(edges[b]) - 0.8), y: y(value), height: y(0) - y(value), fill: colour(j), opacity: 0.85 });
        const range = b === 0 ? `below ${edges[1]}` : b === density.length - 1 ? `above ${edges[b]}` : `${edges[b]} to ${edges[b + 1]}`;
        tell(bar, `kind ${j}, residuals ${range} noises:\n${percent(counts[j][b] / total)} of rows`);
      });
      const points = Array.from({ length: 81 }, (_, t) => -5 + t / 8);
      add(svg, "path", { class: "curve", d: points.map((z, t) => `${t ? "L" : "M"}${x(z)} ${y(bell(z))}`).join("") });
      add(svg, "line", { class: "axis", x1: x(-5), x2: x(5), y1: y(0), y2: y(0) });
      for (const z of [-4, -2, 0, 2, 4]) add(svg, "text", { x: x(z), y: y0 + height + 15, "text-anchor": "middle" }, String(z).replace("-", "\u2212"));
    });
  });

  // ---------------------------------------------------------------- the table of clients

  const body = byId("client-rows");
  if (body) {
    const lines = data.clients.listed;
    const search = byId("search");
    const kind = byId("only");
    const heads = [...document.querySelectorAll("#clients th")];
    let [sorted, down, room] = [1, true, 15];
    const fill = () => {
      const wanted = search.value.trim().toLowerCase();
      const found = lines.filter((line) => (!wanted || line[0].toLowerCase().includes(wanted)) && (kind.value === "" || line[2] === Number(kind.value)));
      const sign = down ? -1 : 1;
      const compare = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
      found.sort((a, b) => sign * compare(a[sorted], b[sorted]));
      body.replaceChildren();
      for (const line of found.slice(0, room)) {
        const row = add(body, "tr");
        const cell = add(row, "td");
        const at = wanted ? line[0].toLowerCase().indexOf(wanted) : -1;
        if (at < 0) cell.textContent = line[0];
        else {
          cell.append(line[0].slice(0, at));
          add(cell, "mark", {}, line[0].slice(at, at + wanted.length));
          cell.append(line[0].slice(at + wanted.length));
        }
        add(row, "td", {}, count(line[1]));
        const label = add(row, "td");
        add(label, "span", { class: "dot", style: `--hue:${colour(line[2])}` });
        label.append(` ${line[2]}`);
        add(row, "td", {}, line[3].toFixed(line[3] > 0.999 && line[3] < 1 ? 4 : 3));
        if (line.length > 4) add(row, "td", {}, line[5] >= 0.0005 ? `${line[4]} (${line[5].toFixed(3)})` : "\u2013");
      }
      byId("found").textContent = found.length ? `${count(Math.min(room, found.length))} of ${count(found.length)} shown` : `nobody of the ${count(lines.length)} listed`;
      byId("more").hidden = found.length <= room;
      heads.forEach((head, i) => head.setAttribute("aria-sort", i === sorted ? (down ? "descending" : "ascending") : "none"));
    };
    const refill = () => { room = 15; fill(); };
    search.addEventListener("input", refill);
    kind.addEventListener("input", refill);
    byId("more").addEventListener("click", () => { room += 100; fill(); });
    heads.forEach((head, i) => head.querySelector("button")?.addEventListener("click", () => {
      [sorted, down] = [i, i === sorted ? !down : i === 1];
      refill();
    }));
    const order = byId("sorting");
    order.addEventListener("input", () => {
      [sorted, down] = order.value === "unsure" ? [3, false] : [1, true];
      refill();
    });
    fill();
  }

  // ---------------------------------------------------------------- the page

  for (const card of document.querySelectorAll(".kind")) {
    const j = Number(card.dataset.kind);
    card.style.setProperty("--hue", colour(j));
    card.addEventListener("click", () => bring(focus === j ? null : j));
  }
  for (const dot of document.querySelectorAll(".dot[data-kind]")) dot.style.setProperty("--hue", colour(Number(dot.dataset.kind)));
  byId("theme").addEventListener("click", () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try { localStorage.mixfedTheme = next; } catch { /* not kept, then */ }
  });
  // On paper: light, and as wide as the page.
  let theme = null;
  addEventListener("beforeprint", () => {
    theme = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
    for (const again of figures) again();
  });
  addEventListener("afterprint", () => {
    document.documentElement.dataset.theme = theme;
    for (const again of figures) again();
  });
})();
