"""Commands that fit kinds and use them: `pack`, `fit`, `assign`, `predict`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.errors import DataError, SettingsError
from .options import (
    JOURNAL,
    AsJson,
    Card,
    Client,
    Clusters,
    Coefficients,
    Config,
    Data,
    Features,
    FitFolder,
    Intercept,
    Loss,
    LossName,
    Packed,
    Personal,
    Quiet,
    Recipe,
    RecipeName,
    Seed,
    Target,
    command_line,
    complain,
    parse_clusters,
    read_settings,
    recipe_named,
    say,
    split_names,
    tidy,
)
from .show import export

if TYPE_CHECKING:
    from ..clients.store import Held
    from ..exchange.pool import Pool
    from ..model.assignment import Assignment
    from ..model.model import Model

app = typer.Typer()


@app.command()
@tidy
def fit(
    data: Packed,
    *,
    client: Client = None,
    target: Target = None,
    out: Annotated[Path, typer.Option(help="The folder to write the results in.")] = Path("result"),
    features: Features = None,
    clusters: Clusters = "auto",
    recipe: Recipe = RecipeName.auto,
    loss: Loss = LossName.squared,
    personal: Personal = False,
    intercept: Intercept = True,
    config: Config = None,
    seed: Seed = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    dask: Annotated[
        str | None, typer.Option(help="Fit on the cluster of this scheduler.", metavar="TCP://HOST:PORT")
    ] = None,
    card: Card = None,
    coef: Coefficients = None,
    mlflow: Annotated[
        bool,
        typer.Option("--mlflow", help="Log run and files to the MLflow server in MLFLOW_TRACKING_URI."),
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit one model per kind of client; write `report.html`, `model.json`, `clients.parquet` and what else there is.

    A file needs `--client` and `--target`; a folder of `mixfed pack` knows them, and may be larger than memory.

    Example: `mixfed fit clients.parquet --client client --target y --out result`
    """
    import dataclasses

    from ..clients.store import Store, open_held
    from ..core.compile import told_of_compiling
    from ..exchange.journal import JournalPool, fingerprint
    from ..model.residuals import residuals
    from ..report.folder import about_run, check_same_run, write_results
    from . import screen
    from .columns import need_columns, notes_on, show_notes
    from .output_checks import check_file, check_folder

    silent = quiet or as_json
    n_clusters = parse_clusters(clusters)
    settings = read_settings(recipe, config, n_clusters, personal)
    check_folder(out, data)
    check_file("--card", card, data)
    check_file("--coef", coef, data)
    if not data.is_dir():
        need_columns(data, client, target, "fit", quiet=silent)
    if mlflow:
        from ..report.mlflow import require_mlflow

        require_mlflow()
    with screen.working(f"Reading {data.name}", silent):
        table = open_held(data, client, target, split_names(features), intercept=intercept)
    if isinstance(table, Store):
        client, target = table.client_column, table.target_column
    noticed = notes_on(data, table, client, target, features)
    if not silent:
        show_notes(noticed)
    out.mkdir(parents=True, exist_ok=True)
    run = fingerprint(table, recipe.value, n_clusters, settings, loss.value, seed)
    if resume:
        check_same_run(out, run)
    with JournalPool(_pool(table, dask), out / JOURNAL, run, resume=resume) as pool:
        rounds = screen.Rounds(silent)
        with rounds as watch, told_of_compiling(rounds.compiling):
            found = recipe_named(recipe)(pool, table.features, n_clusters, settings, seed=seed, watch=watch)
        model = dataclasses.replace(found.model, client_column=client, target_column=target)
        assigned = model.assign(table)
        found = dataclasses.replace(found, model=model.with_details(residuals=residuals(model, table, assigned)))
        command = command_line(
            "fit",
            data,
            client=client,
            target=target,
            features=features,
            clusters=clusters,
            recipe=recipe,
            personal=personal or None,
            config=config,
            intercept=intercept,
            seed=seed,
            out=out,
        )
        about = about_run(data.name, command, run, noticed)
        write_results(out, found, assigned, about)
    export(found, assigned, about | {"folder": str(out)}, card, coef)
    if mlflow:
        from ..report.mlflow import log_run

        log_run(out, found, about)
    if as_json:
        typer.echo(json.dumps(model.scalars() | found.scalars()))
    elif not quiet:
        screen.show(*screen.summary(found, found.model, assigned), *screen.where_it_is(out))
    else:
        for warning in model.warnings:
            complain(f"warning: {warning}")


@app.command()
@tidy
def assign(
    folder: FitFolder,
    data: Packed,
    out: Annotated[Path, typer.Option(help="Where to write the kinds (.parquet or .csv).")],
    quiet: Quiet = False,
) -> None:
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


@app.command()
@tidy
def predict(
    folder: FitFolder,
    data: Data,
    out: Annotated[Path, typer.Option(help="Where to write the predictions (.parquet or .csv).")],
    history: Annotated[
        Path | None, typer.Option(help="Rows with targets that tell the kinds of these clients.")
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(help="Give bounds, too: targets are between them with this probability.", metavar="0.9"),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Predict the target of each row, in row order.

    Clients in `--history` are predicted by the kind that it shows, other clients of the fit by the kind found there,
    and all others by the mean over the kinds. With `--interval 0.9` there are columns `low` and `high`.

    Example: `mixfed predict result new.parquet --out predictions.parquet`
    """
    from ..clients.store import is_store
    from ..model.model import Model
    from ..report.folder import read_assignment
    from ..tables.roles import read_rows
    from ..tables.write import write_table
    from .output_checks import check_table

    if interval is not None and not 0 < interval < 1:
        raise SettingsError(f"--interval {interval:g}: a probability between 0 and 1 is wanted, such as 0.9")
    check_table(out, data, history, folder / "clients.parquet")
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
    rows = read_rows(data, client, None, model.features, intercept=model.has_intercept)
    columns = {"prediction": model.predict(rows, known)}
    if interval is not None:
        columns["low"], columns["high"] = model.predict_interval(rows, known, interval).T
    write_table(out, columns)
    seen = 0 if known is None else int((known.places(rows.ids) >= 0).sum())
    say(f"{out}: {len(rows.owner)} predictions; the kinds of {seen} of {len(rows.ids)} clients are known", quiet)


@app.command()
@tidy
def pack(
    data: Data,
    *,
    client: Client = None,
    target: Target = None,
    out: Annotated[Path, typer.Option(help="The folder to write the packed table in.")],
    features: Features = None,
    quiet: Quiet = False,
) -> None:
    """Pack a table that is larger than memory, for `mixfed fit` to read from disk.

    Example: `mixfed pack clients.parquet --client client --target y --out packed`
    """
    from ..clients.packing import pack as write
    from . import screen
    from .columns import need_columns, notes_on, show_notes

    client, target = need_columns(data, client, target, "pack", quiet=quiet)
    with screen.Rows(quiet) as watch:
        made = write(data, out, client, target, split_names(features), watch=watch)
    if not quiet:
        show_notes(notes_on(data, made, client, target, features))
    said = (
        f"{out}: {made.n_rows} rows of {made.n_clients} clients, {made.dim - made.intercept} features, "
        f"{screen.size(made.size)}; next: mixfed fit {out} --out result"
    )
    say(said, quiet)


def _pool(table: Held, scheduler: str | None) -> Pool:
    """Keep the clients here, or give them to the workers of a dask scheduler."""
    if scheduler is None:
        from ..clients.local import LocalPool

        return LocalPool(table)
    try:
        from ..clients.dask import DaskPool, connect
    except ImportError:
        raise SettingsError("--dask needs dask.distributed: install mixfed[dask]") from None
    return DaskPool(connect(scheduler), table)


def _columns_of(model: Model) -> tuple[str, str]:
    if model.client_column is None or model.target_column is None:
        raise SettingsError(
            "this model does not know which columns are client and target: take that of `mixfed fit`, or of a site"
        )
    return model.client_column, model.target_column


def _assignment(model: Model, data: Path, uncertainty: bool | None = None) -> Assignment:
    """Find the kinds of the clients in a file or a packed folder."""
    from ..clients.store import open_held

    client, target = _columns_of(model)
    table = open_held(data, client, target, model.features, intercept=model.has_intercept)
    return model.assign(table, uncertainty=uncertainty)
