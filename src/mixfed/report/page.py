"""The page: sentences, tables and the places of the figures, which a script draws from the digest."""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from .. import __version__
from ..core.errors import DataError
from ..core.files import write_text
from ..model.assignment import Assignment
from ..model.fit import Fit, phase_name
from ..model.model import Model
from ..model.traits import counts, digits, traits
from ..recipes.paper.theory import predict_for
from . import sentences
from .figures import digest


def write_report(path: Path, found: Fit, assigned: Assignment | None, about: dict[str, Any] | None = None) -> None:
    """Write the report of a fit as one HTML file, whole or not at all."""
    write_text(path, report_html(found, assigned, about))


def report_html(found: Fit, assigned: Assignment | None, about: dict[str, Any] | None = None) -> str:
    """Make the report of a fit.

    ``assigned`` has the clients of the fit with their kinds, or None where these stayed with their owners; ``about`` is
    what is known of the run besides: ``data``, ``command``, ``versions``, ``notes``, ``folder``.
    """
    model, about = found.model, about or {}
    numbers = digest(model, assigned, found.trace)
    for record in numbers["trace"]:
        record["name"] = phase_name(record["phase"])
    sections = list(_sections(found, numbers, about))
    return fill_in(
        "page.html",
        version=escape(__version__),
        title=escape(sentences.title(model, about.get("data"))),
        css=_static("report.css"),
        links="".join(f'<a href="#{name}">{label}</a>' for name, label, _ in sections if label),
        facts=_facts(model),
        tiles="".join(
            f'<div class="tile"><b>{escape(number)}</b><span>{escape(what)}</span></div>'
            for number, what in sentences.tiles(model, numbers)
        ),
        body="\n".join(html for _, _, html in sections),
        # A tag within a name must not end the script that holds it.
        digest=json.dumps(numbers, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        script=_static("report.js"),
    )


def fill_in(name: str, **values: object) -> str:
    """Fill in a file of `static`."""
    return Template(_static(name)).substitute(values)


@cache
def _static(name: str) -> str:
    return (files(__package__) / "static" / name).read_text(encoding="utf-8")


def _sections(found: Fit, numbers: dict[str, Any], about: dict[str, Any]) -> Iterable[tuple[str, str, str]]:
    """Give the sections in order: anchor, label in the bar at the top, HTML."""
    model = found.model
    if model.warnings:
        yield "warnings", "", _warnings(model)
    yield "kinds", "Kinds", _kinds(model, numbers)
    yield "coefficients-section", "Coefficients", _coefficients(model)
    if numbers["certainty"] is not None:
        if model.n_clusters > 1:
            yield "sure", "Certainty", _pair(_certainty(numbers), _sizes(numbers))
        else:
            yield "sure", "", _sizes(numbers)
    if numbers["residuals"] is not None:
        left_over = _figure("residuals", "What the models leave over", sentences.residuals(model))
        yield "residuals-section", "Residuals", left_over
    if numbers["clients"] is not None:
        yield "clients-section", "Clients", _clients(model, numbers)
    process = []
    if len(numbers["choice"]) > 1:
        process.append(_figure("choice", "How many kinds?", sentences.choice(model)))
    if numbers["trace"]:
        process.append(_convergence(found, numbers))
    if process:
        yield "choice-section" if len(process) > 1 else "fit", "The fit", _pair(*process)
    yield "run", "This run", _pair(_run(found, about), _theory(model))


def _facts(model: Model) -> str:
    clients, rows = counts(model)
    facts = [f"{clients:,} clients", f"{rows:,} rows"] if clients else []
    facts.append(f"{len(model.features):,} {'feature' if len(model.features) == 1 else 'features'}")
    if model.target_column:
        facts.append(f"target <b>{escape(model.target_column)}</b>")
    if model.client_column:
        facts.append(f"client <b>{escape(model.client_column)}</b>")
    return " &middot; ".join(facts)


def _warnings(model: Model) -> str:
    items = "".join(f"<li>{escape(warning)}</li>" for warning in model.warnings)
    return f'<section class="warnings" id="warnings"><h2>To keep in mind</h2><ul>{items}</ul></section>'


def _kinds(model: Model, numbers: dict[str, Any]) -> str:
    cards = "".join(_card(model, j, kind) for j, kind in enumerate(numbers["kinds"]))
    return _section(
        "kinds", "The kinds", f"<p>{escape(sentences.kinds(model))}</p>", f'<div class="kinds">{cards}</div>'
    )


def _card(model: Model, j: int, kind: dict[str, Any]) -> str:
    facts = [f"{kind['clients']:,} placed here"] if kind["clients"] is not None else []
    facts += [f"about {kind['rows']:,.0f} rows"] if kind["rows"] is not None else []
    facts += [f"noise&nbsp;{digits(kind['noise'])}"] if kind["noise"] is not None else []
    told = "".join(
        f"<li><b>{escape(trait.name)}</b><span>{trait.told[0]} <i>vs {trait.told[1]}</i></span></li>"
        for trait in traits(model, j)
    )
    return (
        f'<button type="button" class="kind" data-kind="{j}" aria-pressed="false">'
        f'<span class="head"><span class="dot"></span>Kind {j}'
        f'<span class="share">{sentences.percent(kind["share"])}</span></span>'
        f'<span class="bar" style="display:block"><i style="width:{100 * kind["share"]:.1f}%"></i></span>'
        f"<small>{' &middot; '.join(facts)}</small>"
        f"{f'<ul>{told}</ul>' if told else ''}</button>"
    )


def _coefficients(model: Model) -> str:
    return fill_in(
        "coefficients.html",
        common="for a usual change" if "spread" in model.details else "one for all",
        telling='<option value="telling">kinds differ most</option>' if model.n_clusters > 1 else "",
        every='<label><input type="checkbox" id="all"> show all</label>' if len(model.features) > 12 else "",
        caption=escape(sentences.coefficients(model)),
        table=_coefficient_table(model),
    )


def _coefficient_table(model: Model) -> str:
    errors, rows = model.theta_error, []
    for feature, name in enumerate(model.terms):
        cells = [escape(name)]
        for j in range(model.n_clusters):
            error = "" if errors is None else f" <small>&plusmn;{errors[j, feature]:.2g}</small>"
            cells.append(f"{model.theta[j, feature]:.5g}{error}")
        rows.append(cells)
    return _table(["", *(f"kind {j}" for j in range(model.n_clusters))], rows, 'id="coefficient-table"')


def _certainty(numbers: dict[str, Any]) -> str:
    chances = numbers["certainty"]["chances"]
    table = _table(
        ["put into", *(f"is kind {j}" for j in range(len(chances)))],
        [[f"kind {j}", *(sentences.percent(chance) for chance in line)] for j, line in enumerate(chances)],
    )
    return _figure(
        "certainty",
        "How sure is each client's kind?",
        sentences.certainty(numbers),
        {"plain": "Clients", "log": "Logarithmic"},
        f"<details><summary>Which kinds mix</summary>{table}{_caption(sentences.OVERLAP)}</details>",
        section="sure",
    )


def _sizes(numbers: dict[str, Any]) -> str:
    views = {"counts": "Clients", "shares": "Shares"} | ({"sure": "Certainty"} if len(numbers["kinds"]) > 1 else {})
    return _figure("sizes", "Clients by number of rows", sentences.sizes(numbers), views)


def _convergence(found: Fit, numbers: dict[str, Any]) -> str:
    told = {name for record in numbers["trace"] for name in record}
    views = {"likelihood": "Likelihood", "loss": "Loss", "movement": "Movement"}
    phases = [
        [phase_name(phase), f"{traffic.exchanges}", f"{traffic.bytes_down:,}", f"{traffic.bytes_up:,}"]
        for phase, traffic in found.phases().items()
    ]
    table = _table(["phase", "exchanges", "bytes to a client or site", "bytes from it"], phases)
    return _figure(
        "convergence",
        "How the fit went",
        sentences.convergence(found.phases(), found.stop),
        {name: label for name, label in views.items() if name in told},
        f"<details><summary>Exchanges and bytes by phase</summary>{table}</details>",
        section="fit",
    )


def _clients(model: Model, numbers: dict[str, Any]) -> str:
    several = model.n_clusters > 1
    return fill_in(
        "clients.html",
        said=escape(sentences.clients(numbers)),
        hidden="" if several else " hidden",
        kinds="".join(f'<option value="{j}">kind {j}</option>' for j in range(model.n_clusters)),
        next_kind="<th>next kind</th>" if several else "",
    )


def _theory(model: Model) -> str:
    try:
        theory = predict_for(model)
    except DataError:
        return ""
    said = f"<p>{escape(sentences.theory(theory.gamma is not None))}</p>"
    table = _words(theory.described(), ["quantity", "value", "meaning"])
    return _section("theory", "For readers of the paper", said, table)


def _run(found: Fit, about: dict[str, Any]) -> str:
    model = found.model
    facts = [
        ["recipe", model.recipe],
        ["family", model.family],
        ["loss", model.loss],
        ["seed", str(model.seed)],
        ["exchanges", f"{found.traffic.exchanges}"],
        ["seconds", f"{sum(found.seconds.values()):.2f}"],
    ]
    if "likelihood" in model.details:
        facts.append(["log likelihood", f"{model.details['likelihood']:.6g}"])
    if model.bic is not None:
        facts.append(["BIC (less is better)", f"{model.bic:.6g}"])
    facts += [[name, str(version)] for name, version in about.get("versions", {}).items()]
    settings = model.details.get("settings", {})
    chosen = [[name, str(value)] for name, value in settings.items() if value is not None]
    parts = [_words(facts)]
    parts += [f'<p class="soft">{escape(note)}</p>' for note in about.get("notes", [])]
    if chosen:
        parts.append(f"<details><summary>Settings of the recipe</summary>{_words(chosen)}</details>")
    if about.get("command"):
        parts.append(f"<h3>To get this again</h3><pre>{escape(about['command'])}</pre>")
    folder = about.get("folder") or "result"
    code = f'from mixfed import Model\n\nmodel = Model.load("{folder}")\nprint(model.coef, model.features)'
    parts.append(f"<h3>To go on in Python</h3><pre>{escape(code)}</pre>")
    return _section("run", "This run", *parts)


def _section(name: str, heading: str, *parts: str) -> str:
    return f'<section id="{name}"><h2>{escape(heading)}</h2>{"".join(parts)}</section>'


def _figure(
    name: str, heading: str, caption: str, views: dict[str, str] | None = None, *more: str, section: str = ""
) -> str:
    """Make the section of a figure, which the script draws."""
    buttons = "" if views is None else _buttons(name, views)
    plot = f'<div class="plot" id="{name}"></div>'
    return _section(section or f"{name}-section", heading, buttons, plot, _caption(caption), *more)


def _pair(*sections: str) -> str:
    return f'<div class="pair">{"".join(sections)}</div>'


def _caption(text: str) -> str:
    return f'<p class="caption">{escape(text)}</p>'


def _buttons(figure: str, views: dict[str, str]) -> str:
    """Offer the views of a figure, if there are several; the first is shown."""
    buttons = "".join(
        f'<button type="button" data-value="{name}" aria-pressed="{"true" if place == 0 else "false"}">{label}</button>'
        for place, (name, label) in enumerate(views.items())
    )
    return f'<div class="controls" data-for="{figure}"{"" if len(views) > 1 else " hidden"}>{buttons}</div>'


def _words(rows: Iterable[Sequence[str]], heads: Sequence[str] = ()) -> str:
    """Make a table of text."""
    return _table(heads, [[escape(cell) for cell in row] for row in rows], 'class="words"')


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], attributes: str = "") -> str:
    """Make a table of cells that are HTML already."""
    head = "".join(f"<th>{cell}</th>" for cell in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    head = f"<thead><tr>{head}</tr></thead>" if heads else ""
    return f'<div class="scroll"><table {attributes}>{head}<tbody>{body}</tbody></table></div>'
