"""What the command line shows: progress, tables, warnings."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from .model import Model
from .run import Fit, Watcher
from .run import Progress as Event
from .theory import Theory

_PHASES = {"fedmd": "Phase 1, moment descent", "fedx": "Phase 2, refinement"}
_SHOWN = 6


def show(*parts: RenderableType) -> None:
    """Print to standard output."""
    console = Console()
    for part in parts:
        console.print(part)


class Rounds:
    """Bars that show the rounds of a fit as they end, on a terminal's standard error."""

    def __init__(self, quiet: bool) -> None:
        self.bars: dict[str, Any] = {}
        self.progress = Progress(
            TextColumn("{task.description:<24}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            disable=quiet or not sys.stderr.isatty(),
        )

    def __enter__(self) -> Watcher:
        self.progress.start()
        return self.update

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def update(self, event: Event) -> None:
        """Move the bar of the event's phase."""
        if event.phase not in self.bars:
            name = _PHASES.get(event.phase, event.phase)
            self.bars[event.phase] = self.progress.add_task(name, total=event.rounds, note="")
        note = f"longest step {event.info.movement:.1e}"
        self.progress.update(self.bars[event.phase], completed=event.round, note=note)


def summary(found: Fit, model: Model) -> list[RenderableType]:
    """Show the kinds, what the fit took, and its warnings."""
    parts: list[RenderableType] = [kinds_table(model)]
    if len(model.features) > _SHOWN:
        parts.append(f"The {_SHOWN} of {len(model.features)} coefficients that differ most between kinds.")
    seconds = sum(found.seconds.values())
    parts.append(f"{len(found.trace)} rounds, {found.traffic.exchanges} exchanges, {seconds:.1f} s; {found.stop}.")
    return parts + [f"[yellow]Warning:[/yellow] {warning}" for warning in model.warnings]


def kinds_table(model: Model) -> Table:
    """Show each kind's share, noise and the coefficients that tell it from the others."""
    shown = np.argsort(-np.ptp(model.coef, axis=0), kind="stable")[:_SHOWN]
    table = Table(title=f"{model.n_clusters} kinds of client", title_justify="left")
    for heading in ("kind", "share", "noise", *(["intercept"] if model.has_intercept else [])):
        table.add_column(heading, justify="right")
    for feature in shown:
        table.add_column(model.features[feature], justify="right")
    for j in range(model.n_clusters):
        cells = [str(j), f"{model.weights[j]:.1%}", f"{model.noise[j]:.3g}"]
        cells += [f"{model.intercept[j]:.3g}"] if model.has_intercept else []
        table.add_row(*cells, *(f"{model.coef[j, feature]:.3g}" for feature in shown))
    return table


def theory_table(theory: Theory) -> Table:
    """Show the paper's quantities."""
    table = Table(title="The paper's quantities (up to constants)", title_justify="left")
    for heading in ("quantity", "value", "meaning"):
        table.add_column(heading)
    for row in theory.described():
        table.add_row(*row)
    return table
