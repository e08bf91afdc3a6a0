"""A command that was typed wrong is told so in one plain line, as every other mistake is."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click
from typer.core import TyperGroup

STOPPED = 130
"""Exit code after Ctrl-C."""


class PlainGroup(TyperGroup):
    """Commands whose mistakes of usage are one line on stderr and exit code 2."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **more: Any,
    ) -> Any:
        """Run the command that is asked for."""
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **more)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), nl=False)  # nothing, where rich has shown it already
            code = error.exit_code
        except click.ClickException as error:
            click.echo(f"mixfed: {_in_words(error)}", err=True)
            code = error.exit_code
        except click.Abort:
            click.echo("mixfed: stopped", err=True)
            code = STOPPED
        except OSError as error:
            give_up_printing(error)
            raise
        if standalone_mode:
            sys.exit(code or 0)
        return code


def flush_output() -> None:
    """Write out what was printed, or end the command."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        _end_output(error)


def give_up_printing(error: OSError) -> None:
    """End the command if it was printing that failed, and not something else."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    if frame.f_globals["__name__"].startswith(("click.", "rich.")):
        _end_output(error)


def _end_output(error: OSError) -> NoReturn:
    """End the command because nothing can be printed: quietly if nobody reads it any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or else Python would try again at its end
    if error.errno == errno.EPIPE:
        sys.exit(1)
    click.echo(f"mixfed: standard output: {os.strerror(error.errno or 0)}", err=True)
    sys.exit(2)


def _in_words(error: click.ClickException) -> str:
    """Say what is wrong with a command, and where its options are told."""
    text, _, guess = " ".join(error.format_message().split()).partition("Did you mean")
    text = text[:1].lower() + text[1:].rstrip(" (.")
    guess = guess.partition("?")[0].strip()  # click and typer may both have one
    context = getattr(error, "ctx", None)
    way = f" see {context.command_path} --help" if context is not None else ""
    return f"{text}; did you mean {guess}?{way}" if guess else f"{text};{way}".rstrip(";")
