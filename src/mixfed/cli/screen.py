"""What the command line shows: summaries, tables, warnings."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from ..core.names import REPORT
from ..families.student import Student
from ..model.assignment import Assignment
from ..model.fit import Fit, phase_name
from ..model.model import Model
from ..model.traits import by_difference, counts, digits, title, traits, typical_error
from ..report.folder import FILES

if TYPE_CHECKING:
    from ..evaluation.compare import Comparison
    from ..federation.flare.admin import Result, Submitted
    from ..recipes.paper.theory import Theory

_STATUS = {
    "FINISHED:COMPLETED": "done",
    "FINISHED:ABNORMAL": "done, a site was lost",
    "FINISHED:ABORTED": "stopped",
    "FINISHED:EXECUTION_EXCEPTION": "failed",
}
"""What the engine says of a job, in words."""
_MOST_SHOWN = 8


def show(*parts: RenderableType) -> None:
    """Print to standard output."""
    console = Console()
    for part in parts:
        console.print(part)


def table_of(title: str, *headings: str, words: int = 1) -> Table:
    """Begin a table, of numbers but for the first columns, which are words."""
    table = Table(title=title, title_justify="left")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place < words else "right")
    return table


def size(count: int) -> str:
    """Show a number of bytes as people do."""
    value, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g} {unit}"


def summary(found: Fit, model: Model, assigned: Assignment | None = None) -> list[RenderableType]:
    """Show the kinds, what tells them apart, what the fit took, and its warnings."""
    parts: list[RenderableType] = [choice_table(model)] if model.details.get("choice") else []
    if families := model.details.get("families"):
        told = ", ".join(f"{one['family']} {one['bic']:,.1f}" for one in families)
        parts.append(f"The target is taken to be {model.family}, of the lowest BIC: {told}.")
    shown = min(len(model.features), _columns_that_fit(Console().width, model))
    parts.append(kinds_table(model, shown, assigned))
    if shown < len(model.features):
        which = "differ most between kinds" if model.n_clusters > 1 else "are strongest"
        parts.append(f"[dim]The {shown} of {len(model.features)} coefficients that {which}.[/dim]")
    if model.coef_error is not None:
        parts.append("[dim]Below each coefficient is its standard error.[/dim]")
    if isinstance(family := model.target_family, Student):
        parts.append(f"The noise has the tails of Student's t with {family.nu:.3g} degrees of freedom.")
    if model.personal:
        parts.append("Clients deviate from their kind: predictions of known clients are by models of their own.")
    parts += _apart(model)
    parts += _sampling(model)
    seconds = sum(found.seconds.values())
    rounds = "" if len(found.trace) == found.traffic.exchanges else f"{len(found.trace)} rounds, "
    parts.append(f"{rounds}{found.traffic.exchanges} exchanges, {seconds:.1f} s; {found.stop}.")
    return parts + [f"[yellow]Warning:[/yellow] {escape(warning)}" for warning in model.warnings]


def _apart(model: Model) -> list[RenderableType]:
    """Say in words what kinds stand out by, and what they are good for."""
    parts: list[RenderableType] = []
    for j in range(model.n_clusters):
        told = "; ".join(str(trait) for trait in traits(model, j, 2))
        if told:
            parts.append(f"Kind {j} stands out by {escape(told)}.")
    pooled, typical = model.details.get("pooled_noise"), typical_error(model)
    if typical is not None and pooled is not None and model.n_clusters > 1:
        error = digits(typical)
        parts.append(f"A row is typically missed by {error}; by {digits(pooled)} with one model for all.")
    return parts


def where_it_is(folder: Path) -> list[RenderableType]:
    """Say which files a fit wrote, and what to do with them."""
    place = escape(shlex.quote(str(folder)))
    return [
        f"Open [bold]{escape(str(folder / REPORT))}[/bold] in a browser; beside it are {', '.join(FILES[:-1])}.",
        f"[dim]Next: mixfed predict {place} NEW.csv --out predictions.parquet (or mixfed assign, for kinds only)[/dim]",
    ]


def federation_summary(found: Result) -> list[RenderableType]:
    """Show who took part, and what that took."""
    table = table_of(f"{len(found.about['sites'])} sites", "site", "clients", "rows", "received", "sent")
    for name, site in found.about["sites"].items():
        traffic = (size(site["bytes_down"]), size(site["bytes_up"]))
        table.add_row(escape(name), f"{site['clients']:,}", f"{site['rows']:,}", *traffic)
    parts: list[RenderableType] = [
        table,
        phases_table(found.fit),
        f"{found.seconds_per_exchange:.3f} s per exchange (median).",
    ]
    said = [f"{name} did not take part: {why}" for name, why in found.about["absent"].items()]
    said += [f"{name} has not got the model: {why}" for name, why in found.about["without_model"].items()]
    return parts + [f"[yellow]Warning:[/yellow] {escape(line)}" for line in said]


def phases_table(found: Fit) -> Table:
    """Show what each phase of a fit took."""
    table = table_of("Exchanges", "phase", "exchanges", "to a site", "from a site")
    for phase, traffic in found.phases().items():
        table.add_row(phase_name(phase), str(traffic.exchanges), size(traffic.bytes_down), size(traffic.bytes_up))
    return table


def comparison(across: Fit, alone: Fit, difference: float) -> list[RenderableType]:
    """Put a fit across sites beside the same fit in one process."""
    told = "likelihood" in alone.model.details
    headings = ("", "kinds", "exchanges", *(["log likelihood"] if told else []))
    table = table_of("Beside the same fit in one process", *headings)
    for name, fit in (("across sites", across), ("in one process", alone)):
        likelihood = [f"{fit.model.details['likelihood']:.6f}"] if told else []
        table.add_row(name, str(fit.model.n_clusters), str(fit.traffic.exchanges), *likelihood)
    return [table, f"The largest difference of a coefficient is {difference:.2g}."]


def comparison_table(found: Comparison) -> list[RenderableType]:
    """Show how all rivals did, the best in bold."""
    from ..evaluation.compare import SMALL

    title = f"Held-out error of {found.held_out:,} of {found.n_rows:,} rows, {found.n_clients:,} clients"
    few = found.held_out_small > 0
    of_family = ["deviance"] if found.outcomes[0].deviance is not None else []
    table = table_of(title, "", "error", *(["small clients"] if few else []), *of_family, "kinds", "seconds")
    best = min(one.rmse for one in found.outcomes)
    best_small = min(one.rmse_small for one in found.outcomes) if few else 0.0
    for one in found.outcomes:
        cells = [_best(f"{one.rmse:.4g}", one.rmse <= best)]
        cells += [_best(f"{one.rmse_small:.4g}", one.rmse_small <= best_small)] if few else []
        cells += [] if one.deviance is None else [f"{one.deviance:.4g}"]
        table.add_row(one.rival, *cells, ", ".join(map(str, sorted(set(one.n_clusters)))), f"{one.seconds:.2f}")
    splits = len(found.outcomes[0].by_split)
    note = f"Root mean squared error, the mean of {splits} {'split' if splits == 1 else 'splits'}; the best is bold."
    if few:
        note += f" Small clients have at most {SMALL} rows to be fitted to."
    if of_family:
        note += " The deviance of a row is twice the log likelihood that its prediction loses."
    return [table, f"[dim]{note}[/dim]"]


def _best(text: str, best: bool) -> str:
    return f"[bold]{text}[/bold]" if best else text


def jobs_table(jobs: Sequence[Submitted]) -> Table:
    """Show what was submitted to a federation."""
    table = table_of("Jobs", "run", "submitted (UTC)", "status", words=3)
    for job in jobs:
        submitted = job.submitted[:19].replace("T", " ")
        table.add_row(escape(job.run), submitted, _STATUS.get(job.status, job.status.lower()))
    return table


def _sampling(model: Model) -> list[RenderableType]:
    """Say if the kinds were sought among some clients only."""
    clients, _ = counts(model)
    asked = model.details.get("searched_clients", clients)
    if asked == clients:
        return []
    return [
        f"The kinds were sought among {asked:,} of {clients:,} clients, enough for {len(model.features)} features, "
        f"{model.n_clusters} kinds and this noise; the models are those of all."
    ]


def choice_table(model: Model) -> Table:
    """Show the numbers of kinds that were tried."""
    choice = model.details["choice"]
    rows, asked = round(sum(model.details["kind_rows"])), choice[0]["rows"]
    where = "" if asked == rows else f"; on a sample of {asked:,} rows, then checked on all"
    title = f"How many kinds (the lowest BIC wins{where})"
    table = table_of(title, "kinds", "log likelihood", "BIC", words=0)
    table.add_column("")
    for entry in choice:
        chosen = entry["n_clusters"] == model.n_clusters
        name = f"[bold]{entry['n_clusters']}[/bold]" if chosen else str(entry["n_clusters"])
        note = "chosen" if chosen else str(entry["reason"])
        table.add_row(name, f"{entry['likelihood']:.1f}", f"{entry['bic']:.1f}", note)
    return table


def _columns_that_fit(width: int, model: Model) -> int:
    """Say how many coefficients a screen of this width has room for."""
    widest = max(9, *(len(name) for name in model.features))
    return int(np.clip((width - (49 if model.has_intercept else 37)) // (widest + 3), 1, _MOST_SHOWN))


def kinds_table(model: Model, count: int, assigned: Assignment | None = None) -> Table:
    """Show each kind's clients, share, noise and the ``count`` coefficients that tell most."""
    shown = by_difference(model)[:count]
    sizes = [] if assigned is None else [f"{size:,}" for size in assigned.sizes]
    placed, called = ["placed"] if sizes else [], model.target_family.words.noise
    noise = [] if called is None else [called]
    intercept = ["intercept"] if model.has_intercept else []
    names = [escape(model.features[feature]) for feature in shown]
    table = table_of(title(model), "kind", *placed, "share", *noise, *intercept, *names, words=0)
    for j in range(model.n_clusters):
        cells = [str(j), *sizes[j : j + 1], f"{model.weights[j]:.1%}"]
        cells += [] if model.noise is None else [digits(model.noise[j])]
        if model.has_intercept:
            cells.append(_cell(model.intercept[j], None if model.intercept_error is None else model.intercept_error[j]))
        for feature in shown:
            error = None if model.coef_error is None else model.coef_error[j, feature]
            cells.append(_cell(model.coef[j, feature], error))
        table.add_row(*cells)
    return table


def _cell(value: float, error: float | None) -> str:
    """Show a coefficient above its standard error."""
    return digits(value) if error is None else f"{digits(value)}\n[dim]±{error:.2g}[/dim]"


def theory_table(theory: Theory) -> Table:
    """Show the paper's quantities."""
    table = table_of("The paper's quantities (up to constants)", "quantity", "value", "meaning", words=3)
    for row in theory.described():
        table.add_row(*row)
    return table
