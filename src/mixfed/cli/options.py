"""What commands have in common: options, how they end, and the settings of a fit."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ..core.errors import MixfedError, PoolError, SettingsError
from ..core.names import JOURNAL
from .usage import STOPPED, give_up_printing

if TYPE_CHECKING:
    from ..recipes.settings import AutoSettings, PaperSettings


class RecipeName(StrEnum):
    """How to fit."""

    auto = "auto"
    paper = "paper"


class LossName(StrEnum):
    """The kind of target."""

    squared = "squared"


_FILE = "A .parquet or .csv file, or .tsv or .txt; text also with .gz, .bz2 or .zst"
Data = Annotated[Path, typer.Argument(help=f"{_FILE}.", show_default=False)]
Packed = Annotated[Path, typer.Argument(help=f"{_FILE}; or a folder of `mixfed pack`.", show_default=False)]
Client = Annotated[str | None, typer.Option(help="The column that says whose row it is.")]
Target = Annotated[str | None, typer.Option(help="The column to explain.")]
FitFolder = Annotated[Path, typer.Argument(help="A folder that `mixfed fit` wrote.", show_default=False)]
Features = Annotated[str | None, typer.Option(help="Comma-separated columns. [every other numeric column]")]
Clusters = Annotated[str, typer.Option(help="Number of kinds; auto finds it.", metavar="auto|K")]
Recipe = Annotated[RecipeName, typer.Option(help="auto needs no tuning; paper follows the paper and needs --config.")]
Loss = Annotated[LossName, typer.Option(help="The kind of target.")]
Personal = Annotated[bool, typer.Option("--personal", help="Let clients deviate from the model of their kind.")]
Intercept = Annotated[bool, typer.Option(help="Give every model a constant term.")]
Config = Annotated[Path | None, typer.Option(help="A TOML file with a table [auto] or [paper].")]
Seed = Annotated[int, typer.Option(help="Same seed, same result.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing, unless something is wrong.")]
Card = Annotated[Path | None, typer.Option(help="Write a model card (Markdown) here, too.", metavar="FILE.md")]
Coefficients = Annotated[Path | None, typer.Option(help="Write the coefficients here, too.", metavar="FILE.csv")]


def tidy(command: Callable[..., None]) -> Callable[..., None]:
    """Turn what the user can mend into one line on stderr and exit code 2, and Ctrl-C into 130."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        new = _new_folders(options.get("out"))
        try:
            command(*args, **options)
        except MixfedError as error:
            hint = _resume_hint(options) if isinstance(error, PoolError) else ""
            _end(f"{error}{hint}", 2, new)
        except OSError as error:
            give_up_printing(error)
            _end(_why_not_written(error, options.get("out")) + _resume_hint(options), 2, new)
        except MemoryError:
            _end("there is not enough memory for this table: `mixfed pack` it, and fit the packed folder", 2, new)
        except KeyboardInterrupt as stop:
            _end("; ".join(["stopped", *map(str, stop.args)]) + _resume_hint(options), STOPPED, new)

    return run


def _resume_hint(options: dict[str, Any]) -> str:
    out = options.get("out")
    resumable = out is not None and (out / JOURNAL).is_file()
    return "; the same command with --resume goes on" if resumable else ""


def say(text: str, quiet: bool = False) -> None:
    """Print a line, unless nothing is to be printed."""
    if not quiet:
        typer.echo(text)


def complain(message: str) -> None:
    """Say in one line on stderr what is wrong."""
    typer.echo(f"mixfed: {' '.join(message.split())}", err=True)


def _why_not_written(error: OSError, out: Path | None) -> str:
    """Say which file could not be read or written, and why."""
    where = error.filename or out
    # Arrow has a long story before it comes to the point.
    reason = os.strerror(error.errno) if error.errno else str(error)
    return f"{where}: {reason}" if where else reason


def _new_folders(out: Path | None) -> list[Path]:
    """Give the folders that a command would have to make for its results, the innermost first."""
    return [] if out is None else [folder for folder in (out, *out.parents) if not folder.exists()]


def _end(message: str, code: int, new: list[Path]) -> NoReturn:
    """End a command, and remove the folders that it made for results that there are none of."""
    for folder in new:
        with contextlib.suppress(OSError):
            folder.rmdir()
    complain(message)
    raise typer.Exit(code) from None


def read_settings(
    recipe: RecipeName, config: Path | None, n_clusters: int | None, personal: bool = False
) -> AutoSettings | PaperSettings:
    """Give the settings of a recipe, from a file if there is one."""
    from ..recipes.settings import read_config

    if recipe is RecipeName.auto:
        settings = auto_settings(config)
        return dataclasses.replace(settings, personal=True) if personal else settings
    if personal:
        raise SettingsError("--personal goes with --recipe auto: the paper's kinds have one model for all clients")
    if config is None:
        raise SettingsError("--recipe paper needs its constants: give a TOML file with a table [paper] by --config")
    if n_clusters is None:
        raise SettingsError("--recipe paper does not find the number of kinds: give it by --clusters K")
    paper: PaperSettings = read_config(config, "paper")
    return paper


def auto_settings(config: Path | None) -> AutoSettings:
    """Give the settings of the tuning-free recipe."""
    from ..recipes.settings import AutoSettings, read_config

    found: AutoSettings = AutoSettings() if config is None else read_config(config, "auto")
    return found


def parse_clusters(text: str) -> int | None:
    """Give the number of kinds, or None if it is to be found."""
    if text == "auto":
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise SettingsError(f"--clusters {text}: give auto or a whole number, 1 or more")
    return int(text)


def command_line(command: str, *arguments: object, **options: object) -> list[str]:
    """Give the command with those of its options that are not None, as a person would type it."""
    words = ["mixfed", command, *map(str, arguments)]
    for name, value in options.items():
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        elif value is not None:
            words += [f"--{name}", str(value)]
    return words


def split_names(text: str | None) -> list[str] | None:
    """Take names apart; a comma after the last does no harm."""
    if text is None:
        return None
    names = text.rstrip(", ")
    if not names:
        raise SettingsError(f"'{text}': give names, with commas between them")
    return [name.strip() for name in names.split(",")]
