"""The help of a command, as it is drawn: what it does, with an example, and what can be given to it."""

from __future__ import annotations

from collections.abc import Iterable

import click
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text


def help_screen(command: click.Command, context: click.Context) -> str:
    """Draw the help of a command, or of a group of commands, as wide as the terminal."""
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    arguments, options = [], []
    for item in command.get_params(context):
        if isinstance(item, click.Argument):
            arguments.append((item.human_readable_name, f"{getattr(item, 'help', '')}  [required]"))
        else:
            options += [record] if (record := item.get_help_record(context)) else []
    commands = command.commands if isinstance(command, click.Group) else {}
    console = Console()
    with console.capture() as drawn:
        for paragraph in (f"Usage: `{usage}`", *(command.help or "").split("\n\n")):
            console.print(Padding(_words(paragraph), (0, 1, 1, 1)))
        _draw(console, "Arguments", arguments)
        _draw(console, "Options", options)
        _draw(console, "Commands", ((name, (inner.help or "").split("\n\n")[0]) for name, inner in commands.items()))
        if command.epilog:
            console.print(Padding(_words(command.epilog), 1))
    return drawn.get().rstrip("\n")


def _draw(console: Console, title: str, rows: Iterable[tuple[str, str]]) -> None:
    """Draw what can be given, and what it means, if there is anything."""
    table = Table.grid(padding=(0, 2))
    for names, meaning in rows:
        given = Text(names, "yellow")  # what an option takes
        given.highlight_regex(r"(?<!\w)--?\w[\w-]*|^[a-z]+$", "bold cyan")
        table.add_row(given, _words(meaning))
    if table.row_count:
        console.print(Panel(table, title=title, title_align="left", border_style="dim"))


def _words(text: str) -> Text:
    """Set a paragraph: what is between backticks is bold, a note in brackets at the end dim."""
    shown = Text()
    for place, part in enumerate(" ".join(text.split()).split("`")):
        shown.append(part, "bold cyan" if place % 2 else "")
    shown.highlight_regex(r"\[[^]]*\]$", "dim")
    return shown
