"""How commands are used: their help, how they end, and every mistake told in one plain line on stderr."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import click

from ..core.errors import MixfedError, PoolError
from ..core.names import JOURNAL

STOPPED = 130
"""Exit code after Ctrl-C."""


class _Helpful(click.Command):
    def get_help(self, ctx: click.Context) -> str:
        """Draw the help."""
        from .help_screen import help_screen

        return help_screen(self, ctx)


class Command(_Helpful):
    """A command that turns what the user can mend into one line and exit code 2, and Ctrl-C into 130."""

    def invoke(self, ctx: click.Context) -> None:
        """Run the command."""
        out: Path | None = ctx.params.get("out")
        new = [] if out is None else [folder for folder in (out, *out.parents) if not folder.exists()]
        resumable = "; the same command with --resume goes on"
        try:
            super().invoke(ctx)
            return
        except MixfedError as error:
            message, code = str(error), 2
            resumable = resumable if isinstance(error, PoolError) else ""
        except OSError as error:
            give_up_printing(error)
            # Arrow has a long story before it comes to the point.
            reason = os.strerror(error.errno) if error.errno else str(error)
            message, code = ": ".join(str(part) for part in (error.filename or out, reason) if part), 2
        except MemoryError:
            message, code = "there is not enough memory for this table: `mixfed pack` it, and fit the packed folder", 2
            resumable = ""
        except KeyboardInterrupt as stop:
            message, code = "; ".join(["stopped", *map(str, stop.args)]), STOPPED
        complain(message + (resumable if out is not None and (out / JOURNAL).is_file() else ""))
        for folder in new:  # that were made for results that there are none of, the innermost first
            with contextlib.suppress(OSError):
                folder.rmdir()
        ctx.exit(code)


class Group(_Helpful, click.Group):
    """Commands in the order in which they were added, whose mistakes of usage are one line and exit code 2."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands."""
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the arguments; without any, show the help."""
        if not args and not ctx.resilient_parsing:
            click.echo(self.get_help(ctx))
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find the command that is asked for."""
        if args[0] not in self.commands and not ctx.resilient_parsing:
            ctx.fail(f"no such command '{args[0]}'{_meant(get_close_matches(args[0], self.commands))}")
        return super().resolve_command(ctx, args)

    def main(
        self,
        args: Any = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **more: Any,
    ) -> Any:
        """Run the command that is asked for."""
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **more)
        except click.ClickException as error:
            complain(_in_words(error))
            code = error.exit_code
        except click.Abort:
            complain("stopped")
            code = STOPPED
        except OSError as error:
            give_up_printing(error)
            raise
        if standalone_mode:
            sys.exit(code or 0)
        return code


def complain(message: str) -> None:
    """Say in one line on stderr what is wrong."""
    click.echo(f"mixfed: {' '.join(message.split())}", err=True)


def _in_words(error: click.ClickException) -> str:
    """Say what is wrong with a command, and where its options are told; click's words are others in every version."""
    text = " ".join(error.format_message().split()).rstrip(" .")
    if isinstance(error, click.NoSuchOption):
        text = f"no such option '{error.option_name}'{_meant(error.possibilities or [])}"
    text = text[:1].lower() + text[1:]
    context = getattr(error, "ctx", None)
    if context is None:
        return text
    return f"{text}{'' if text.endswith('?') else ';'} see {context.command_path} --help"


def _meant(names: list[str]) -> str:
    return f"; did you mean {' or '.join(map(repr, names))}?" if names else ""


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
    complain(f"standard output: {os.strerror(error.errno or 0)}")
    sys.exit(2)
