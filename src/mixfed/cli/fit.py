"""Commands that find kinds: `fit`, and `pack` for tables that are larger than memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.errors import SettingsError
from ..core.names import JOURNAL
from . import options
from .options import command_line, flag, parse_clusters, path_option, read_settings, say, split_names, with_ridge
from .show import export
from .usage import Command, complain

if TYPE_CHECKING:
    from ..clients.store import ClientData
    from ..exchange.pool import Pool

_REPEATED = (
    "client",
    "target",
    "features",
    "clusters",
    "recipe",
    "family",
    "weights",
    "offset",
    "exposure",
    "ridge",
    "personal",
    "config",
    "intercept",
    "seed",
    "out",
)
"""Options that make the same fit again."""


@click.command(cls=Command)
@options.packed
@options.columns
@path_option("--out", default="result", help="The folder to write the results in.")
@options.features
@options.what_to_fit
@options.beside_features
@click.option("--ridge", type=float, metavar="X", help="Pull kinds to the pooled model; 0 does not. [1; of numbers 0]")
@flag("--personal", help="Let clients deviate from the model of their kind.")
@flag("--resume", help="Go on with a run that was stopped.")
@click.option("--dask", metavar="TCP://HOST:PORT", help="Fit on the cluster of this scheduler.")
@options.written_too
@flag("--mlflow", help="Log run and files to the MLflow server in MLFLOW_TRACKING_URI.")
@options.as_json
@options.quiet
def fit(
    data: Path,
    client: str | None,
    target: str | None,
    out: Path,
    features: str | None,
    clusters: str,
    recipe: str,
    family: str,
    intercept: bool,
    config: Path | None,
    seed: int,
    weights: str | None,
    offset: str | None,
    exposure: str | None,
    ridge: float | None,
    personal: bool,
    resume: bool,
    dask: str | None,
    card: Path | None,
    coef: Path | None,
    mlflow: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Fit one model per kind of client; write `report.html`, `model.json`, `clients.parquet` and what else there is.

    A file needs `--client` and `--target`; a folder of `mixfed pack` knows them, and may be larger than memory.

    Example: `mixfed fit clients.parquet --client client --target y --out result`
    """
    import dataclasses

    from .. import recipes
    from ..clients.store import Store, open_clients
    from ..exchange.journal import JournalPool, fingerprint
    from ..kernels import told_of_compiling
    from ..model.residuals import residuals
    from ..report.folder import about_run, check_same_run, write_results
    from ..tables.roles import Extras
    from . import progress, screen
    from .columns import need_columns, notes_on, show_notes
    from .output_checks import check_file, check_folder

    silent = quiet or as_json
    n_clusters = parse_clusters(clusters)
    settings = read_settings(recipe, config, n_clusters, personal)
    if ridge is not None:
        settings = with_ridge(settings, family, ridge)
    check_folder(out, data)
    check_file("--card", card, data)
    check_file("--coef", coef, data)
    if not data.is_dir():
        need_columns(data, client, target, "fit", quiet=silent)
    if mlflow:
        from ..report.mlflow import require_mlflow

        require_mlflow()
    extras = Extras(offset, exposure, weights)
    with progress.working(f"Reading {data.name}", silent):
        table = open_clients(data, client, target, split_names(features), intercept=intercept, extras=extras)
    if isinstance(table, Store):
        client, target = table.client_column, table.target_column
    noticed = notes_on(data, table, client, target, features, family, extras.names)
    if not silent:
        show_notes(noticed)
    out.mkdir(parents=True, exist_ok=True)
    run = fingerprint(table, recipe, n_clusters, settings, family, seed)
    if resume:
        check_same_run(out, run)
    with JournalPool(_pool(table, dask), out / JOURNAL, run, resume=resume) as pool:
        rounds = progress.Rounds(silent)
        with rounds as watch, told_of_compiling(table.n_rows * table.dim, rounds.compiling):
            found = recipes.fit(pool, table.features, n_clusters, settings, loss=family, seed=seed, watch=watch)
        model = dataclasses.replace(
            found.model, client_column=client, target_column=target, offset_column=offset, exposure_column=exposure
        )
        assigned = model.assign(table)
        found = dataclasses.replace(found, model=model.with_details(residuals=residuals(model, table, assigned)))
        known = {"client": client, "target": target, "personal": personal or None}
        asked = click.get_current_context().params | known
        command = command_line("fit", data, **{name: asked[name] for name in _REPEATED})
        about = about_run(data.name, command, run, noticed)
        write_results(out, found, assigned, about)
    export(found, assigned, about | {"folder": str(out)}, card, coef)
    if mlflow:
        from ..report.mlflow import log_run

        log_run(out, found, about)
    if as_json:
        click.echo(json.dumps(model.scalars() | found.scalars()))
    elif not quiet:
        screen.show(*screen.summary(found, found.model, assigned), *screen.where_it_is(out))
    else:
        for warning in model.warnings:
            complain(f"warning: {warning}")


@click.command(cls=Command)
@options.data
@options.columns
@path_option("--out", required=True, help="The folder to write the packed table in.")
@options.features
@options.quiet
def pack(data: Path, client: str | None, target: str | None, out: Path, features: str | None, quiet: bool) -> None:
    """Pack a table that is larger than memory, for `mixfed fit` to read from disk.

    Example: `mixfed pack clients.parquet --client client --target y --out packed`
    """
    from ..clients.packing import pack as write
    from . import progress, screen
    from .columns import need_columns, notes_on, show_notes

    client, target = need_columns(data, client, target, "pack", quiet=quiet)
    with progress.Rows(quiet) as watch:
        made = write(data, out, client, target, split_names(features), watch=watch)
    if not quiet:
        show_notes(notes_on(data, made, client, target, features))
    said = (
        f"{out}: {made.n_rows} rows of {made.n_clients} clients, {made.dim - made.intercept} features, "
        f"{screen.size(made.size)}; next: mixfed fit {out} --out result"
    )
    say(said, quiet)


def _pool(table: ClientData, scheduler: str | None) -> Pool:
    """Keep the clients here, or give them to the workers of a dask scheduler."""
    if scheduler is None:
        from ..clients.local import LocalPool

        return LocalPool(table)
    try:
        from ..clients.dask import DaskPool, connect
    except ImportError:
        raise SettingsError("--dask needs dask.distributed: install mixfed[dask]") from None
    return DaskPool(connect(scheduler), table)
