"""What commands have in common: options, how they end, and the settings of a fit."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .errors import MixfedError, PoolError, SettingsError

if TYPE_CHECKING:
    from .run import Fit
    from .settings import AutoSettings, PaperSettings

JOURNAL = "journal.bin"
STOPPED = 130
"""Exit code after Ctrl-C."""


class RecipeName(StrEnum):
    """How to fit."""

    auto = "auto"
    paper = "paper"


class LossName(StrEnum):
    """The kind of target."""

    squared = "squared"


Packed = Annotated[
    Path, typer.Argument(help="A .parquet, .csv or .csv.gz file, or a folder of `mixfed pack`.", show_default=False)
]
Features = Annotated[str | None, typer.Option(help="Comma-separated columns. [every other numeric column]")]
Clusters = Annotated[str, typer.Option(help="Number of kinds; auto finds it.", metavar="auto|K")]
Recipe = Annotated[RecipeName, typer.Option(help="auto needs no tuning; paper follows the paper and needs --config.")]
Loss = Annotated[LossName, typer.Option(help="The kind of target.")]
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
        try:
            command(*args, **options)
        except MixfedError as error:
            _remove_empty(options.get("out"))
            complain(str(error) + (_resume_hint(options) if isinstance(error, PoolError) else ""))
            raise typer.Exit(2) from None
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            complain(f"{where}{error.strerror or error}")
            raise typer.Exit(2) from None
        except KeyboardInterrupt as stop:
            complain("; ".join(["stopped", *map(str, stop.args)]) + _resume_hint(options))
            raise typer.Exit(STOPPED) from None

    return run


def recipe_named(recipe: RecipeName) -> Callable[..., Fit]:
    """Import the recipe asked for, and no other."""
    if recipe is RecipeName.paper:
        from .paper import fit_paper

        return fit_paper
    from .auto import fit_auto

    return fit_auto


def _resume_hint(options: dict[str, Any]) -> str:
    out = options.get("out")
    resumable = out is not None and (out / JOURNAL).exists()
    return "; the same command with --resume goes on" if resumable else ""


def complain(message: str) -> None:
    """Say in one line on stderr what is wrong."""
    typer.echo(f"mixfed: {' '.join(message.split())}", err=True)


def _remove_empty(folder: Path | None) -> None:
    """Remove a folder for results that there are none of."""
    if folder is not None and folder.is_dir():
        with contextlib.suppress(OSError):
            folder.rmdir()


def read_settings(recipe: RecipeName, config: Path | None, n_clusters: int | None) -> AutoSettings | PaperSettings:
    """Give the settings of a recipe, from a file if there is one."""
    from .settings import AutoSettings, read_config

    if recipe is RecipeName.paper:
        if config is None:
            raise SettingsError("--recipe paper needs its constants: give a TOML file with a table [paper] by --config")
        if n_clusters is None:
            raise SettingsError("--recipe paper does not find the number of kinds: give it by --clusters K")
    found: AutoSettings | PaperSettings = read_config(config, recipe.value) if config is not None else AutoSettings()
    return found


def parse_clusters(text: str) -> int | None:
    """Give the number of kinds, or None if it is to be found."""
    if text == "auto":
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise SettingsError(f"--clusters {text}: give auto or a whole number, 1 or more")
    return int(text)


def command_line(command: str, *arguments: object, **options: object) -> list[str]:
    """Give the command with those of its options that are not left open, as a person would type it."""
    words = ["mixfed", command, *map(str, arguments)]
    for name, value in options.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    return words


def split_names(text: str | None) -> list[str] | None:
    """Take names apart."""
    return [name.strip() for name in text.split(",")] if text is not None else None
