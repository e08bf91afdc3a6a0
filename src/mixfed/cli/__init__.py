"""The command line: all commands, each in the module of its sort. What they show is drawn in `screen`.

Heavy modules are imported by the commands that need them, so that ``mixfed --help`` is quick.
"""

from __future__ import annotations

import os
import sys

import click

from .. import __version__
from . import compare, demo, federate, fit, predict, show, warm
from .usage import STOPPED, Group, flush_output

app = Group(
    "mixfed",
    help="Find the kinds of client, one regression model per kind, and each client's kind.",
    epilog="Try `mixfed demo`, then `mixfed fit YOUR.csv`, which lists the columns to choose from.",
    context_settings={"show_default": True},
)
click.version_option(__version__, message="mixfed %(version)s", help="Print the version.")(app)
for command in (
    *(fit.fit, fit.pack, predict.assign, predict.predict, show.report, show.theory, compare.compare),
    *(demo.simulate, demo.demo, federate.federate, warm.warm),
):
    app.add_command(command)


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
