"""The model card: a page of Markdown that travels with a model."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..core.files import write_text
from ..model.assignment import Assignment
from ..model.fit import Fit
from ..model.model import Model
from ..model.traits import by_difference, counts, digits, traits, typical_error

_SHOWN = 10
"""Coefficients in the card, at most: the others are in ``model.json``."""


def write_card(path: Path, found: Fit, assigned: Assignment | None, about: dict[str, Any]) -> None:
    """Write the card of a fit, whole or not at all."""
    write_text(path, "\n".join(_lines(found, assigned, about)) + "\n")


def _lines(found: Fit, assigned: Assignment | None, about: dict[str, Any]) -> Iterable[str]:
    model = found.model
    target, client = model.target_column or "the target", model.client_column or "clients"
    yield f"# Model card: {target} by {client}, {model.n_clusters} {'kind' if model.n_clusters == 1 else 'kinds'}"
    yield ""
    yield (
        f"A mixture of {model.n_clusters} linear {'regression' if model.n_clusters == 1 else 'regressions'}: each "
        "client "
        "belongs to one kind, and clients of a kind share a model. Made with mixfed, which implements and extends "
        "Su, Xu "
        "and Yang, *Global Convergence of Federated Learning for Mixed Regression*."
    )
    if model.personal:
        yield from ["", "Within a kind, each client has a model of its own, close to that of the kind (a mixed model)."]
    yield from ["", "## Data", "", *_data(model, about)]
    yield from ["", "## Kinds", "", *_kinds(model, assigned)]
    yield from ["", "## Coefficients", "", *_coefficients(model)]
    yield from ["", "## How good it is", "", *_quality(found, assigned)]
    yield from ["", "## To keep in mind", "", *_limits(model)]
    yield from ["", "## Use", "", *_use(about)]


def _data(model: Model, about: dict[str, Any]) -> Iterable[str]:
    if about.get("data"):
        yield f"- Table: {about['data']}"
    clients, rows = counts(model)
    if clients:
        sizes = model.details["sizes"]
        yield f"- {clients:,} clients with {rows:,} rows, from {sizes[0][0]:,} to {sizes[-1][0]:,} each"
    yield f"- Features: {', '.join(model.features)}{', and an intercept' if model.has_intercept else ''}"
    yield from (f"- {note[0].upper()}{note[1:]}" for note in about.get("notes", []))


def _kinds(model: Model, assigned: Assignment | None) -> Iterable[str]:
    counts = [""] * model.n_clusters if assigned is None else [f"{size:,}" for size in assigned.sizes]
    rows = [
        [str(j), f"{model.weights[j]:.1%}", counts[j], digits(model.noise[j]), "; ".join(map(str, traits(model, j)))]
        for j in range(model.n_clusters)
    ]
    yield from _table(["kind", "share", "clients", "noise", "stands out by"], rows)


def _coefficients(model: Model) -> Iterable[str]:
    errors = model.theta_error
    shown = [*by_difference(model)[:_SHOWN].tolist(), *([len(model.features)] if model.has_intercept else [])]
    rows = []
    for feature in shown:
        cells = [f"{theta[feature]:.4g}" for theta in model.theta]
        if errors is not None:
            cells = [f"{cell} ± {error[feature]:.2g}" for cell, error in zip(cells, errors, strict=True)]
        rows.append([model.terms[feature], *cells])
    yield from _table(["", *(f"kind {j}" for j in range(model.n_clusters))], rows)
    if len(model.features) > _SHOWN:
        yield from ["", f"The {_SHOWN} of {len(model.features)} that tell most; all are in `model.json`."]
    if errors is not None:
        yield from ["", "After ± is the standard error."]


def _quality(found: Fit, assigned: Assignment | None) -> Iterable[str]:
    model = found.model
    pooled = model.details.get("pooled_noise")
    beside = f"; {pooled:.3g} with one model for all" if pooled is not None and model.n_clusters > 1 else ""
    yield f"- Typical error of a row, in the fit: {typical_error(model):.3g}{beside}"
    if assigned is not None and model.n_clusters > 1:
        yield f"- Clients placed with a probability of 0.9 or more: {(assigned.probability >= 0.9).mean():.1%}"
    if "likelihood" in model.details:
        yield f"- Log likelihood: {model.details['likelihood']:.6g}"
    choice = model.details.get("choice", [])
    if choice:
        tried = ", ".join(f"{entry['n_clusters']}: {entry['bic']:.6g}" for entry in choice)
        yield f"- BIC by number of kinds (less is better): {tried}"
    if found.stop:
        yield f"- The fit ended because {found.stop}."


def _limits(model: Model) -> Iterable[str]:
    yield from (f"- {warning[0].upper()}{warning[1:]}." for warning in model.warnings)
    yield (
        "- A client is of one kind, and its rows follow a line in the features with normal noise: look at the "
        "residuals in the report."
    )
    yield (
        "- A client that was never seen is predicted by the mean over kinds; a few rows of its history make that its "
        "own kind."
    )
    yield (
        "- Coefficients describe how the target goes with the features. They do not say what would happen if a "
        "feature were changed."
    )


def _use(about: dict[str, Any]) -> Iterable[str]:
    yield from [
        "```python",
        "from mixfed import Model",
        "",
        f'model = Model.load("{about.get("folder", "result")}")',
        "```",
    ]
    if about.get("command"):
        yield from ["", "Made by:", "", "```", about["command"], "```"]
    if about.get("versions"):
        yield from ["", "With " + ", ".join(f"{name} {found}" for name, found in about["versions"].items()) + "."]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterable[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
