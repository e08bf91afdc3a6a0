"""Commands that use kinds that were found: `assign`, `predict`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.errors import DataError, SettingsError
from ..core.names import CLIENTS
from . import options
from .options import path_option, say
from .usage import Command

if TYPE_CHECKING:
    from ..model.assignment import Assignment
    from ..model.model import Model


@click.command(cls=Command)
@options.fit_folder
@options.packed
@path_option("--out", required=True, help="Where to write the kinds (.parquet or .csv).")
@options.quiet
def assign(folder: Path, data: Path, out: Path, quiet: bool) -> None:
    """Find the kinds of clients, in the fit or never seen, from their rows.

    Example: `mixfed assign result new.parquet --out kinds.parquet`
    """
    from ..model.model import Model
    from ..tables.write import write_table
    from .output_checks import check_table

    check_table(out, data)
    model = Model.load(folder)
    kinds = _assignment(model, data)
    write_table(out, kinds.columns())
    say(f"{out}: the kinds of {len(kinds.ids)} clients", quiet)


@click.command(cls=Command)
@options.fit_folder
@options.data
@path_option("--out", required=True, help="Where to write the predictions (.parquet or .csv).")
@path_option("--history", help="Rows with targets that tell the kinds of these clients.")
@click.option(
    "--interval",
    type=float,
    metavar="0.9",
    help="Give bounds, too: targets are between them with this probability.",
)
@options.quiet
def predict(folder: Path, data: Path, out: Path, history: Path | None, interval: float | None, quiet: bool) -> None:
    """Predict the target of each row, in row order.

    Clients in `--history` are predicted by the kind that it shows, other clients of the fit by the kind found there,
    and all others by the mean over the kinds. With `--interval 0.9` there are columns `low` and `high`.

    Example: `mixfed predict result new.parquet --out predictions.parquet`
    """
    from ..clients.store import is_store
    from ..model.model import Model
    from ..model.prediction import extras_of
    from ..report.folder import read_assignment
    from ..tables.reading import planned, read_rows
    from ..tables.write import write_table
    from .output_checks import check_table

    if interval is not None and not 0 < interval < 1:
        raise SettingsError(f"--interval {interval:g}: a probability between 0 and 1 is wanted, such as 0.9")
    check_table(out, data, history, folder / CLIENTS)
    if is_store(data):
        raise DataError(
            f"{data}: a packed table does not keep the order of rows: give the file that it was packed from"
        )
    model = Model.load(folder)
    client, _ = _columns_of(model)
    known = read_assignment(folder, model)
    if history is not None:
        recent = _assignment(model, history, uncertainty=None if interval is None else True)
        known = known.updated(recent) if known is not None else recent
    extras = extras_of(model)
    plan = planned(data, client, None, [*model.features, *extras.names])
    rows = read_rows(*plan, intercept=model.has_intercept, extras=extras)
    columns = {"prediction": model.predict(rows, known)}
    if interval is not None:
        columns["low"], columns["high"] = model.predict_interval(rows, known, interval).T
    write_table(out, columns)
    seen = 0 if known is None else int((known.places(rows.ids) >= 0).sum())
    say(f"{out}: {len(rows.owner)} predictions; the kinds of {seen} of {len(rows.ids)} clients are known", quiet)


def _columns_of(model: Model) -> tuple[str, str]:
    if model.client_column is None or model.target_column is None:
        raise SettingsError(
            "this model does not know which columns are client and target: take that of `mixfed fit`, or of a site"
        )
    return model.client_column, model.target_column


def _assignment(model: Model, data: Path, uncertainty: bool | None = None) -> Assignment:
    """Find the kinds of the clients in a file or a packed folder."""
    from ..clients.store import open_clients
    from ..model.prediction import extras_of

    client, target = _columns_of(model)
    has_intercept, extras = model.has_intercept, extras_of(model)
    table = open_clients(data, client, target, model.features, intercept=has_intercept, extras=extras)
    return model.assign(table, uncertainty=uncertainty)
