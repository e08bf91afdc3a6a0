"""The command line: all commands, each in the module of its sort. What they show is drawn in `screen`.

Heavy modules are imported by the commands that need them, so that ``mixfed --help`` is quick.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from .. import __version__
from . import (
    compare as cli_compare,
    demo as cli_try,
    federate as cli_federate,
    fit as cli_fit,
    predict as cli_predict,
    show as cli_show,
)
from .usage import STOPPED, PlainGroup, flush_output

app = typer.Typer(
    name="mixfed",
    cls=PlainGroup,
    help="Find the kinds of client, one regression model per kind, and each client's kind.",
    epilog="Try `mixfed demo`, then `mixfed fit YOUR.csv`, which lists the columns to choose from.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
for part in (cli_fit, cli_predict, cli_show, cli_compare, cli_try, cli_federate):
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


def run() -> None:
    """Run the command that is asked for, and end the process with its exit code."""
    try:
        app()
    except KeyboardInterrupt:  # no command has begun
        os._exit(STOPPED)
    except SystemExit as end:
        flush_output()
        if end.code == STOPPED:
            # If Ctrl-C came while Python ran generated code (as imports do), Python would kill itself at its end.
            sys.stderr.flush()
            os._exit(STOPPED)
        raise
