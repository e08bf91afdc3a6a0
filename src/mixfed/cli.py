"""The command line: all commands, each in the module of its sort. What they show is drawn in `screen`.

Heavy modules are imported by the commands that need them, so that ``mixfed --help`` is quick.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Annotated

import typer

from . import __version__, cli_compare, cli_federate, cli_fit, cli_show, cli_try
from .usage import STOPPED, PlainGroup

app = typer.Typer(
    name="mixfed",
    cls=PlainGroup,
    help="Find the kinds of client, one regression model per kind, and each client's kind.",
    epilog="Try `mixfed demo`, then `mixfed fit YOUR.csv`, which lists the columns to choose from.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
for part in (cli_fit, cli_show, cli_compare, cli_try, cli_federate):
    app.add_typer(part.app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mixfed {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Find the kinds of client, one regression model per kind, and each client's kind."""


def main() -> None:
    """Run the command line."""
    gc.set_threshold(100_000)  # imports make objects by the ten thousand, none of them to be collected
    sys.meta_path.insert(0, _Spared())
    try:
        app()
    except SystemExit as end:
        if end.code == STOPPED:
            # If Ctrl-C came while Python ran generated code (as imports do), Python would kill itself at its end.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(STOPPED)
        raise
    finally:
        gc.freeze()  # nor at the end, when Python would look through all of them several times


class _Spared:
    """Arrow imports pandas, and numba cffi, to see whether what they are given is from there. Nothing in here is."""

    def find_spec(self, name: str, *rest: object) -> None:
        """Spare a command the time, which is as long as that of a small fit."""
        if name in ("pandas", "cffi"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
