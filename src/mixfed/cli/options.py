"""What commands have in common: arguments, options, and the settings of a fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from ..core.errors import SettingsError

if TYPE_CHECKING:
    from ..recipes.settings import AutoSettings, PaperSettings

Decorator: TypeAlias = Callable[[Callable[..., None]], Callable[..., None]]
"""Gives a function an argument or an option, or several."""

path_option = partial(click.option, type=click.Path(path_type=Path))
"""An option that takes a file or a folder."""
flag = partial(click.option, is_flag=True)
"""An option that takes nothing."""


class _Argument(click.Argument):
    """An argument that the help explains, in every version of click."""

    def __init__(self, *names: Any, meaning: str, **more: Any) -> None:
        super().__init__(*names, **more)
        self.help = meaning


def argument(name: str, meaning: str) -> Decorator:
    """Give a command an argument, which is a file or a folder."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:  # made anew: click 8.1.0 takes cls only once
        return click.argument(name, cls=_Argument, type=click.Path(path_type=Path), meaning=meaning)(command)

    return decorate


def together(*several: Decorator) -> Decorator:
    """Make one decorator of several, in the order in which the help shows their options."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for decorator in reversed(several):
            command = decorator(command)
        return command

    return decorate


_FILE = "A .parquet or .csv file, or .tsv or .txt; text also with .gz, .bz2 or .zst"
data = argument("data", f"{_FILE}.")
packed = argument("data", f"{_FILE}; or a folder of `mixfed pack`.")
fit_folder = argument("folder", "A folder that `mixfed fit` wrote.")

columns = together(
    click.option("--client", help="The column that says whose row it is."),
    click.option("--target", help="The column to explain."),
)
features = click.option("--features", help="Comma-separated columns. [every other numeric column]")
clusters = click.option("--clusters", default="auto", metavar="auto|K", help="Number of kinds; auto finds it.")
seed = click.option("--seed", default=0, help="Same seed, same result.")
configured = together(
    click.option("--intercept/--no-intercept", default=True, help="Give every model a constant term."),
    path_option("--config", help="A TOML file with a table [auto] or [paper]."),
    seed,
)
what_to_fit = together(
    clusters,
    click.option(
        "--recipe",
        type=click.Choice(["auto", "paper"]),
        default="auto",
        help="auto needs no tuning; paper follows the paper and needs --config.",
    ),
    click.option(
        "--family",
        "--loss",
        type=click.Choice(["auto", "gaussian", "student", "binomial", "poisson", "squared", "huber", "logistic"]),
        default="gaussian",
        help="What the target is: any number, one with outliers (student), 0 or 1 (binomial), a count (poisson), or "
        "whichever has the best BIC (auto); squared, huber and logistic are the first three by their losses.",
    ),
    configured,
)
beside_features = together(
    click.option("--weights", metavar="COLUMN", help="How often each row counts."),
    click.option("--offset", metavar="COLUMN", help="What is added to the linear predictor of each row."),
    click.option("--exposure", metavar="COLUMN", help="What a count is proportional to: an offset of its logarithm."),
)
written_too = together(
    path_option("--card", metavar="FILE.md", help="Write a model card (Markdown) here, too."),
    path_option("--coef", metavar="FILE.csv", help="Write the coefficients here, too."),
)
as_json = flag("--json", "as_json", help="Print one JSON object and nothing else.")
quiet = flag("--quiet", "-q", help="Print nothing, unless something is wrong.")


def say(text: str, quiet: bool = False) -> None:
    """Print a line, unless nothing is to be printed."""
    if not quiet:
        click.echo(text)


def read_settings(
    recipe: str, config: Path | None, n_clusters: int | None, personal: bool = False
) -> AutoSettings | PaperSettings:
    """Give the settings of a recipe, from a file if there is one."""
    from ..recipes.settings import read_config

    if recipe == "auto":
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


def with_ridge(settings: AutoSettings | PaperSettings, family: str, ridge: float) -> AutoSettings:
    """Change the penalty on kinds of a family."""
    from ..families.registry import family_named
    from ..recipes.settings import AutoSettings

    if not isinstance(settings, AutoSettings):
        raise SettingsError("--ridge goes with --recipe auto")
    if family == "auto":
        raise SettingsError("--ridge goes with a family that is named, not with --family auto")
    return dataclasses.replace(settings, family=family_named(family).name, ridge=ridge)


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
