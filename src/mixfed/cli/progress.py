"""Progress of long work: rounds of a fit, rows that are read, rivals that are tried."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from ..model.fit import Progress as Event, phase_name


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

    def __init__(self, unit: str) -> None:
        super().__init__(Column(no_wrap=True))
        self.unit = unit

    def render(self, task: Task) -> Text:
        """Show a rate, once there is one."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.3g}{self.unit}" if speed < 1000 else f"{speed:,.0f}{self.unit}")


class _Bars:
    """Bars on a terminal's standard error, each with its name; where there is little room, they give way."""

    def __init__(self, quiet: bool, *columns: ProgressColumn) -> None:
        self.bars: dict[str, TaskID] = {}
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            *columns,
            console=Console(stderr=True),
            disable=quiet or not sys.stderr.isatty(),
        )

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def move(self, name: str, done: int, total: int | None, note: str = "") -> None:
        """Move a bar, or begin with it."""
        if name not in self.bars:
            self.bars[name] = self.progress.add_task(name, total=total, note=note)
        self.progress.update(self.bars[name], completed=done, note=note)


class Rounds(_Bars):
    """Bars that show the rounds of a fit as they end."""

    def __init__(self, quiet: bool) -> None:
        whole = Column(no_wrap=True)
        super().__init__(
            quiet,
            MofNCompleteColumn(table_column=whole),
            _Rate("/s"),
            TimeElapsedColumn(table_column=whole),
            TimeRemainingColumn(table_column=whole),
            TextColumn("{task.fields[note]}"),
        )

    def __call__(self, event: Event) -> None:
        """Move the bar of the event's phase."""
        self.move(phase_name(event.phase), event.round, event.rounds or None, note=event.info.note)

    def compiling(self) -> None:
        """Say why nothing moves for some seconds."""
        if not self.progress.disable:
            self.progress.console.print("[dim]Compiling for this machine: the next run will not have to.[/dim]")


class Trials(_Bars):
    """A bar that shows how far a comparison is."""

    def __init__(self, quiet: bool, total: int) -> None:
        super().__init__(quiet, MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self.bar = self.progress.add_task("", total=total)
        self.begun = 0

    def __call__(self, rival: str, split: int) -> None:
        """Name who begins; those before are done."""
        self.progress.update(self.bar, completed=self.begun, description=f"split {split + 1}: {rival}".ljust(34))
        self.begun += 1


class Rows(_Bars):
    """Bars that show the passes over a table."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(quiet, TextColumn("{task.completed:,.0f} rows"), _Rate(" rows/s"), TimeRemainingColumn())

    def __call__(self, name: str, done: int, total: int | None) -> None:
        """Move the bar of a pass."""
        self.move(name, done, total)
