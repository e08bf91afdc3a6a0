"""What pages take from the code when they are built: the reference of the command line, and names that must exist."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import click
from mkdocs.exceptions import PluginError

import mixfed
from mixfed.cli import app

_MODULES = {path.stem for path in Path(mixfed.__file__).parent.glob("*.py")}
_FILES = ("py", "json", "bin", "csv", "parquet", "toml")
"""What looks like a name in a module, and is one of a file."""


def on_page_markdown(markdown: str, **rest: Any) -> str:
    """Put the reference of all commands where a page asks for it; refuse a page that speaks of code that is gone."""
    for module, name in re.findall(r"`(\w+)\.([\w.]+)`", markdown):
        if module in _MODULES and name not in _FILES:
            try:
                attrgetter(name)(importlib.import_module(f"mixfed.{module}"))
            except AttributeError as error:
                raise PluginError(f"there is no {module}.{name} in the code") from error
    if "{{ commands }}" not in markdown:
        return markdown
    return markdown.replace("{{ commands }}", "\n".join(_described(app, "mixfed")))


def _described(command: click.Command, name: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        for part, inner in command.commands.items():
            yield from _described(inner, f"{name} {part}")
        return
    yield f"## {name}\n\n{command.help}\n"
    yield "| option | meaning |\n|---|---|"
    for item in command.params:
        yield f"| {_names(item)} | {_meaning(item)} |"
    yield ""


def _names(item: click.Parameter) -> str:
    if isinstance(item, click.Argument):
        return f"`{(item.metavar or item.name or '').upper()}`"
    return ", ".join(f"`{name}`" for name in (*item.opts, *item.secondary_opts))


def _meaning(item: click.Parameter) -> str:
    said = str(getattr(item, "help", None) or "").replace("|", "\\|")
    choices = getattr(item.type, "choices", None)
    if choices:
        said += f" One of {', '.join(f'`{name}`' for name in choices)}."
    default = item.default
    if isinstance(item, click.Option) and not item.is_flag and isinstance(default, str | int | float):
        said += f" Default: `{default}`."
    return said + (" Required." if isinstance(item, click.Option) and item.required else "")
