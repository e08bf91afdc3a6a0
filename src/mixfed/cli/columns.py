"""What the command line shows of a table's columns: those to choose from, and notes on those that were read."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import DataError

if TYPE_CHECKING:
    from rich.table import Table

    from ..clients.store import ClientData
    from ..tables.describe import Guess

_MOST_SHOWN = 40
"""Columns that are shown."""


def need_columns(
    data: Path, client: str | None, target: str | None, command: str, *, quiet: bool = False
) -> tuple[str, str]:
    """Give the names of the client and the target; if one is missing, show the columns to choose from and end."""
    if client is not None and target is not None:
        return client, target
    from ..tables.describe import guess
    from ..tables.roles import told_names

    found = guess(data, client, target)
    if len(found.columns) == 1:
        raise DataError(f"{data.name}: {told_names([found.columns[0].name])}")
    missing = [name for name, value in (("--client", client), ("--target", target)) if value is None]
    if not quiet:
        from .screen import show

        legend = "--client is the column that says whose row it is, --target the one to explain."
        if found.client is None:
            legend += " No column looks like the ids of clients that have several rows each."
        show(columns_table(found, data), legend)
    words = ["mixfed", *command.split(), str(data)]
    words += ["--client", found.client or "COLUMN", "--target", found.target or "COLUMN"]
    words += [] if command == "federate local" else ["--out", "packed" if command == "pack" else "result"]
    names = told_names([column.name for column in found.columns])
    raise DataError(f"{data.name}: give {' and '.join(missing)}; {names}; for example `{shlex.join(words)}`")


def columns_table(found: Guess, data: Path) -> Table:
    """Show what each column holds."""
    from rich.markup import escape

    from .screen import table_of

    rows = f"{found.rows:,} rows" if found.whole else f"the first {found.rows:,} rows"
    table = table_of(f"Columns of {escape(data.name)} ({rows})", "column", "holds", "distinct", "example", "", words=5)
    table.columns[2].justify = "right"
    for column in found.columns[:_MOST_SHOWN]:
        mark = {found.client: "client?", found.target: "target?"}.get(column.name, "")
        holds = "whole numbers" if column.whole else column.holds
        cells = escape(column.name) or "(no name)", holds, f"{column.distinct:,}", escape(column.example), mark
        table.add_row(*cells, style="bold" if mark else None)
    if len(found.columns) > _MOST_SHOWN:
        table.add_row("…", f"{len(found.columns) - _MOST_SHOWN} more columns")
    return table


def notes_on(
    data: Path,
    table: ClientData,
    client: str | None,
    target: str | None,
    features: str | None,
    family: str = "gaussian",
    others: Sequence[str] = (),
) -> tuple[str, ...]:
    """Say what was noticed as a file was read; ``features`` are those asked for. Of a packed folder, nothing.

    ``others`` are columns that are used, too.
    """
    from ..families.registry import family_named
    from ..tables.describe import notes

    if client is None or target is None or data.is_dir():
        return ()
    named, known = features is not None, family if family == "auto" else family_named(family).name
    return notes(data, client, target, table, features_named=named, family=known, others=others)


def show_notes(notes: Sequence[str]) -> None:
    """Show what was noticed as a file was read."""
    from rich.text import Text

    from .screen import show

    show(*(Text(note, style="dim") for note in notes))
