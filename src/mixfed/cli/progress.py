"""Progress of long work: rounds of a fit, rows that are read, rivals that are tried."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from ..model.fit import Progress as Event, Watcher, phase_name
from ..tables.roles import Watch


@contextmanager
def working(what: str, quiet: bool) -> Iterator[None]:
    """Show on a terminal that something is being done."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(what):
        yield


class _Rate(ProgressColumn):
    """How fast it goes."""

    def __init__(self, unit: str, table_column: Column | None = None) -> None:
        super().__init__(table_column)
        self.unit = unit

    def render(self, task: Task) -> Text:
        """Show a rate, once there is one."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.3g}{self.unit}" if speed < 1000 else f"{speed:,.0f}{self.unit}")


class Rounds:
    """Bars that show the rounds of a fit as they end, on a terminal's standard error."""

    def __init__(self, quiet: bool) -> None:
        self.bars: dict[str, Any] = {}
        whole = Column(no_wrap=True)  # where there is little room, the bar gives way
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(table_column=whole),
            _Rate("/s", table_column=whole),
            TimeElapsedColumn(table_column=whole),
            TimeRemainingColumn(table_column=whole),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            disable=quiet or not sys.stderr.isatty(),
        )

    def __enter__(self) -> Watcher:
        self.progress.start()
        return self.update

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def compiling(self) -> None:
        """Say why nothing moves for some seconds."""
        if not self.progress.disable:
            self.progress.console.print("[dim]Compiling for this machine: the next run will not have to.[/dim]")

    def update(self, event: Event) -> None:
        """Move the bar of the event's phase."""
        if event.phase not in self.bars:
            name = phase_name(event.phase)
            self.bars[event.phase] = self.progress.add_task(name, total=event.rounds or None, note="")
        self.progress.update(self.bars[event.phase], completed=event.round, note=event.info.note)


class Trials:
    """A bar that shows how far a comparison is, on a terminal's standard error."""

    def __init__(self, quiet: bool, total: int) -> None:
        self.progress = Progress(
            TextColumn("{task.description:<34}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=quiet or not sys.stderr.isatty(),
        )
        self.bar = self.progress.add_task("", total=total)
        self.begun = 0

    def __enter__(self) -> Callable[[str, int], None]:
        self.progress.start()
        return self.update

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def update(self, rival: str, split: int) -> None:
        """Name who begins; those before are done."""
        self.progress.update(self.bar, completed=self.begun, description=f"split {split + 1}: {rival}")
        self.begun += 1


class Rows:
    """Bars that show the passes over a table, on a terminal's standard error."""

    def __init__(self, quiet: bool = False) -> None:
        self.bars: dict[str, Any] = {}
        self.progress = Progress(
            TextColumn("{task.description:<16}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f} rows"),
            _Rate(" rows/s"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=quiet or not sys.stderr.isatty(),
        )

    def __enter__(self) -> Watch:
        self.progress.start()
        return self.update

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def update(self, name: str, done: int, total: int | None) -> None:
        """Move the bar of a pass."""
        if name not in self.bars:
            self.bars[name] = self.progress.add_task(name, total=total)
        self.progress.update(self.bars[name], completed=done)
