"""A command that was typed wrong is told so in one plain line, as every other mistake is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

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
        if standalone_mode:
            sys.exit(code or 0)
        return code


def _in_words(error: click.ClickException) -> str:
    """Say what is wrong with a command, and where its options are told."""
    text, _, guess = " ".join(error.format_message().split()).partition("Did you mean")
    text = text[:1].lower() + text[1:].rstrip(" (.")
    guess = guess.partition("?")[0].strip()  # click and typer may both have one
    context = getattr(error, "ctx", None)
    way = f" see {context.command_path} --help" if context is not None else ""
    return f"{text}; did you mean {guess}?{way}" if guess else f"{text};{way}".rstrip(";")
