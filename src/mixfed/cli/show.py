"""Commands that show what came of a fit: `report` and `theory`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import options
from .options import path_option, say
from .usage import Command

if TYPE_CHECKING:
    from ..model.assignment import Assignment
    from ..model.fit import Fit


@click.command(cls=Command)
@options.fit_folder
@path_option("--out", metavar="FILE.html", help="Where to write it. [report.html in the folder]")
@options.written_too
@options.quiet
def report(folder: Path, out: Path | None, card: Path | None, coef: Path | None, quiet: bool) -> None:
    """Write the report of a fit again, one HTML file that opens offline, or its coefficients, or a model card.

    Example: `mixfed report result --card model.md --coef coefficients.csv`
    """
    from ..core.names import REPORT
    from ..report import write_report
    from ..report.folder import read_results
    from .output_checks import check_file

    for option, file in (("--out", out), ("--card", card), ("--coef", coef)):
        check_file(option, file)
    found, assigned, about = read_results(folder)
    path = out or folder / REPORT
    write_report(path, found, assigned, about)
    export(found, assigned, about, card, coef)
    say("\n".join(str(written) for written in (path, card, coef) if written is not None), quiet)


@click.command(cls=Command)
@options.fit_folder
@click.option("--error-constant", default=1.0, help="The constant c in p_e.")
@click.option("--deviation-constant", default=1.0, help="The constant C in nu.")
@click.option("--contraction-constant", default=1.0, help="The constant C_1 in the contraction.")
@options.as_json
def theory(
    folder: Path, error_constant: float, deviation_constant: float, contraction_constant: float, as_json: bool
) -> None:
    """Say what the paper's theorems predict for a fit, up to the constants that they leave unnamed.

    Example: `mixfed theory result`
    """
    from ..model.model import Model
    from ..recipes.paper.theory import Constants, predict_for

    found = predict_for(Model.load(folder), Constants(error_constant, deviation_constant, contraction_constant))
    if as_json:
        click.echo(json.dumps(found.as_dict() | {"note": "up to constants"}))
        return
    from . import screen

    screen.show(screen.theory_table(found))


def export(
    found: Fit, assigned: Assignment | None, about: dict[str, Any], card: Path | None, coef: Path | None
) -> None:
    """Write a model card and the coefficients, where they are asked for."""
    if card is not None:
        from ..report.card import write_card

        write_card(card, found, assigned, about)
    if coef is not None:
        from ..report.folder import write_coefficients

        write_coefficients(coef, found.model)
