"""The model card: a page of Markdown that travels with a model."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..core.files import write_text
from ..model.assignment import Assignment
from ..model.fit import Fit
from ..model.model import Model
from ..model.traits import by_difference, counts, digits, traits, typical_error
from .page import fill_in

_SHOWN = 10
"""Coefficients in the card, at most: the others are in ``model.json``."""


_PERSONAL = "\nWithin a kind, each client has a model of its own, close to that of the kind (a mixed model).\n"


def write_card(path: Path, found: Fit, assigned: Assignment | None, about: dict[str, Any]) -> None:
    """Write the card of a fit, whole or not at all."""
    model, k = found.model, found.model.n_clusters
    card = fill_in(
        "card.md",
        target=model.target_column or "the target",
        client=model.client_column or "clients",
        kinds="1 kind" if k == 1 else f"{k} kinds",
        mixture=f"{k} linear {'regression' if k == 1 else 'regressions'}",
        personal=_PERSONAL if model.personal else "",
        data="\n".join(_data(model, about)),
        table="\n".join(_kinds(model, assigned)),
        coefficients="\n".join(_coefficients(model)),
        quality="\n".join(_quality(found, assigned)),
        warnings="".join(f"- {warning[0].upper()}{warning[1:]}.\n" for warning in model.warnings),
        folder=about.get("folder", "result"),
        made="".join(f"\n{line}" for line in _made(about)),
    )
    write_text(path, card)


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
    noises = [[]] * model.n_clusters if model.noise is None else [[digits(noise)] for noise in model.noise]
    rows = [
        [str(j), f"{model.weights[j]:.1%}", counts[j], *noises[j], "; ".join(map(str, traits(model, j)))]
        for j in range(model.n_clusters)
    ]
    noise = [] if model.noise is None else ["noise"]
    yield from _table(["kind", "share", "clients", *noise, "stands out by"], rows)


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
    error = typical_error(model)
    if error is not None:
        yield f"- Typical error of a row, in the fit: {error:.3g}{beside}"
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


def _made(about: dict[str, Any]) -> Iterable[str]:
    if about.get("command"):
        yield from ["", "Made by:", "", "```", about["command"], "```"]
    if about.get("versions"):
        yield from ["", "With " + ", ".join(f"{name} {found}" for name, found in about["versions"].items()) + "."]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterable[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
