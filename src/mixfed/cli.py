"""The command line. What it shows is drawn in `screen`; no other module prints.

Heavy modules are imported by the commands that need them, so that ``mixfed --help`` is quick.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import __version__, cli_federate
from .cli_options import (
    JOURNAL,
    AsJson,
    Card,
    Client,
    Clusters,
    Coefficients,
    Config,
    Data,
    Features,
    Intercept,
    Loss,
    LossName,
    Packed,
    Quiet,
    Recipe,
    RecipeName,
    Seed,
    Target,
    command_line,
    parse_clusters,
    read_settings,
    recipe_named,
    split_names,
    tidy,
)
from .errors import DataError, SettingsError
from .usage import STOPPED, PlainGroup

if TYPE_CHECKING:
    from .model import Assignment, Model
    from .pool import Pool
    from .run import Fit
    from .simulation import Simulation
    from .store import Held

app = typer.Typer(
    name="mixfed",
    cls=PlainGroup,
    help="Find the kinds of client, one regression model per kind, and each client's kind.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.add_typer(cli_federate.app)


class Law(StrEnum):
    """The distribution of a feature."""

    normal = "normal"
    uniform = "uniform"
    rademacher = "rademacher"


FitFolder = Annotated[Path, typer.Argument(help="A folder that `mixfed fit` wrote.", show_default=False)]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mixfed {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Find the kinds of client, one regression model per kind, and each client's kind."""


@app.command()
@tidy
def simulate(
    out: Annotated[Path, typer.Option(help="Where to write the table (.parquet).")],
    clients: Annotated[int | None, typer.Option(help="Number of clients. [10000]")] = None,
    dim: Annotated[int | None, typer.Option(help="Number of features. [30, or the family's]")] = None,
    clusters: Annotated[int | None, typer.Option(help="Number of kinds. [5, or the family's]")] = None,
    family: Annotated[
        str | None,
        typer.Option(help="A hard family: nested, nested-unbalanced, rare, mirror, noisy, wide, skewed."),
    ] = None,
    noise: Annotated[float | None, typer.Option(help="Standard deviation of the noise. [0.3]")] = None,
    radius: Annotated[float | None, typer.Option(help="Norm of the models. [1.5]")] = None,
    law: Annotated[Law | None, typer.Option(help="Distribution of the features. [normal]")] = None,
    spread: Annotated[float | None, typer.Option(help="Spread of each kind's covariance. [1]")] = None,
    degree: Annotated[int | None, typer.Option(help="Degree of the polynomial features. [1]")] = None,
    most_rows: Annotated[int | None, typer.Option(help="Most rows of an ordinary client. [50]")] = None,
    anchors: Annotated[int | None, typer.Option(help="Clients with many rows. [0]")] = None,
    anchor_rows: Annotated[int | None, typer.Option(help="Rows of each of those. [1000]")] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same table.")] = 0,
    quiet: Quiet = False,
) -> None:
    """Simulate a table of clients, with the truth in a .truth.json next to it.

    Example: `mixfed simulate --clients 2000 --dim 10 --clusters 3 --out clients.parquet`
    """
    from . import simulation

    _require_parquet(out)
    made = simulation.simulate(
        family,
        seed=seed,
        n_clients=clients,
        dim=dim,
        n_clusters=clusters,
        noise=noise,
        radius=radius,
        law=law.value if law else None,
        spread=spread,
        degree=degree,
        most_rows=most_rows,
        n_anchors=anchors,
        anchor_rows=anchor_rows,
    )
    _save_simulation(made, out, quiet)


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
    from . import screen
    from .cli_columns import need_columns, notes_on, show_notes
    from .packing import pack as write

    client, target = need_columns(data, client, target, "pack", quiet=quiet)
    with screen.Rows(quiet) as watch:
        made = write(data, out, client, target, split_names(features), watch=watch)
    if not quiet:
        show_notes(notes_on(data, made, client, target, features))
    said = (
        f"{out}: {made.n_rows} rows of {made.n_clients} clients, {made.dim - made.intercept} features, "
        f"{screen.size(made.size)}; next: mixfed fit {out} --out result"
    )
    _say(said, quiet)


@app.command()
@tidy
def fit(
    data: Packed,
    *,
    client: Client = None,
    target: Target = None,
    out: Annotated[Path, typer.Option(help="The folder to write the results in.")],
    features: Features = None,
    clusters: Clusters = "auto",
    recipe: Recipe = RecipeName.auto,
    loss: Loss = LossName.squared,
    intercept: Intercept = True,
    config: Config = None,
    seed: Seed = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    dask: Annotated[
        str | None, typer.Option(help="Fit on the cluster of this scheduler.", metavar="TCP://HOST:PORT")
    ] = None,
    card: Card = None,
    coef: Coefficients = None,
    mlflow: Annotated[bool, typer.Option("--mlflow", help="Log the run and its files to MLflow.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit one model per kind of client; write `report.html`, `model.json`, `clients.parquet` and what else there is.

    A file needs `--client` and `--target`; a folder of `mixfed pack` knows them, and may be larger than memory.

    Example: `mixfed fit clients.parquet --client client --target y --out result`
    """
    import dataclasses

    from . import screen
    from .cli_columns import need_columns, notes_on, show_notes
    from .journal import JournalPool, fingerprint
    from .outputs import check_file, check_folder
    from .portrait import residuals
    from .results import about_run, write_results
    from .store import Store, open_held

    silent = quiet or as_json
    n_clusters = parse_clusters(clusters)
    settings = read_settings(recipe, config, n_clusters)
    check_folder(out, data)
    check_file("--card", card, data)
    check_file("--coef", coef, data)
    if not data.is_dir():
        need_columns(data, client, target, "fit", quiet=silent)
    if mlflow:
        from .tracking import require_mlflow

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
    with JournalPool(_pool(table, dask), out / JOURNAL, run, resume=resume) as pool:
        with screen.Rounds(silent) as watch:
            found = recipe_named(recipe)(pool, table.features, n_clusters, settings, seed=seed, watch=watch)
        model = dataclasses.replace(found.model, client_column=client, target_column=target)
        found = dataclasses.replace(found, model=model.with_details(residuals=residuals(model, table)))
        command = command_line("fit", data, client=client, target=target, features=features, clusters=clusters)
        command += command_line("", recipe=recipe.value, config=config, seed=seed, out=out)[2:]
        about = about_run(data.name, command if intercept else [*command, "--no-intercept"], noticed)
        assigned = model.assign(table)
        write_results(out, found, assigned, about)
    _export(found, assigned, about | {"folder": str(out)}, card, coef)
    if mlflow:
        from .tracking import log_run

        log_run(out, found, about)
    if as_json:
        typer.echo(json.dumps(model.scalars() | found.scalars()))
    elif not quiet:
        screen.show(*screen.summary(found, found.model, assigned), *screen.where_it_is(out))


@app.command()
@tidy
def assign(
    folder: FitFolder,
    data: Packed,
    out: Annotated[Path, typer.Option(help="Where to write the kinds (.parquet).")],
    quiet: Quiet = False,
) -> None:
    """Find the kinds of clients, in the fit or never seen, from their rows.

    Example: `mixfed assign result new.parquet --out kinds.parquet`
    """
    from .model import Model
    from .outputs import check_parquet
    from .tables import write_parquet

    check_parquet(out, data)
    model = Model.load(folder)
    kinds = _assignment(model, data)
    write_parquet(out, kinds.columns())
    _say(f"{out}: the kinds of {len(kinds.ids)} clients", quiet)


@app.command()
@tidy
def predict(
    folder: FitFolder,
    data: Data,
    out: Annotated[Path, typer.Option(help="Where to write the predictions (.parquet).")],
    history: Annotated[
        Path | None, typer.Option(help="Rows with targets that tell the kinds of these clients.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Predict the target of each row, in row order.

    Clients in `--history` are predicted by the kind that it shows, other clients of the fit by the kind found there,
    and all others by the mean over the kinds.

    Example: `mixfed predict result new.parquet --out predictions.parquet`
    """
    from .model import Model
    from .outputs import check_parquet
    from .results import read_assignment
    from .store import is_store
    from .tables import read_rows, write_parquet

    check_parquet(out, data, history, folder / "clients.parquet")
    if is_store(data):
        raise DataError(
            f"{data}: a packed table does not keep the order of rows: give the file that it was packed from"
        )
    model = Model.load(folder)
    client, _ = _columns_of(model)
    known = read_assignment(folder, model)
    if history is not None:
        recent = _assignment(model, history)
        known = known.updated(recent) if known is not None else recent
    rows = read_rows(data, client, None, model.features, intercept=model.has_intercept)
    write_parquet(out, {"prediction": model.predict(rows, known)})
    seen = 0 if known is None else int((known.places(rows.ids) >= 0).sum())
    _say(f"{out}: {len(rows.owner)} predictions; the kinds of {seen} of {len(rows.ids)} clients are known", quiet)


@app.command()
@tidy
def report(
    folder: FitFolder,
    out: Annotated[
        Path | None, typer.Option(help="Where to write it. [report.html in the folder]", metavar="FILE.html")
    ] = None,
    card: Card = None,
    coef: Coefficients = None,
    quiet: Quiet = False,
) -> None:
    """Write the report of a fit again, one HTML file that opens offline, or its coefficients, or a model card.

    Example: `mixfed report result --card model.md --coef coefficients.csv`
    """
    from .outputs import check_file
    from .report import write_report
    from .results import REPORT, read_results

    for option, file in (("--out", out), ("--card", card), ("--coef", coef)):
        check_file(option, file)
    found, assigned, about = read_results(folder)
    path = out or folder / REPORT
    write_report(path, found, assigned, about)
    _export(found, assigned, about, card, coef)
    _say("\n".join(str(written) for written in (path, card, coef) if written is not None), quiet)


@app.command()
@tidy
def theory(
    folder: FitFolder,
    error_constant: Annotated[float, typer.Option(help="The constant c in p_e.")] = 1.0,
    deviation_constant: Annotated[float, typer.Option(help="The constant C in nu.")] = 1.0,
    contraction_constant: Annotated[float, typer.Option(help="The constant C_1 in the contraction.")] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Say what the paper's theorems predict for a fit, up to the constants that they leave unnamed.

    Example: `mixfed theory result`
    """
    from .model import Model
    from .theory import Constants, predict_for

    found = predict_for(Model.load(folder), Constants(error_constant, deviation_constant, contraction_constant))
    if as_json:
        typer.echo(json.dumps(found.as_dict() | {"note": "up to constants"}))
        return
    from . import screen

    screen.show(screen.theory_table(found))


@app.command()
@tidy
def demo(
    out: Annotated[Path, typer.Option(help="The folder to write in.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Same seed, same demo.")] = 0,
) -> None:
    """Simulate clients of four kinds, two by two alike, fit them without a hint, and compare with the truth.

    Example: `mixfed demo`
    """
    from .metrics import bottleneck_distance, label_agreement
    from .model import Model
    from .simulation import simulate as make

    data, made = out / "table.parquet", make("nested", n_clients=5000, seed=seed)
    _save_simulation(made, data)
    fit(data, client="client", target="y", out=out, intercept=False, seed=seed)
    model = Model.load(out)
    if model.n_clusters != len(made.theta):
        typer.echo(f"Against the truth: {model.n_clusters} kinds were found, there are {len(made.theta)}")
        return
    error = bottleneck_distance(model.theta, made.theta)
    floor = bottleneck_distance(made.oracle(), made.theta)
    agreement = label_agreement(model.assign(made.clients).cluster, made.labels)
    few = (made.clients.rows <= 3).mean()
    typer.echo(
        f"Against the truth: error {error:.4f}, {error / floor:.2f} times that of least squares with the kinds known "
        f"({floor:.4f}); {agreement:.1%} of clients in their own kind, though {few:.0%} of them have two or three rows."
    )


def main() -> None:
    """Run the command line."""
    gc.set_threshold(100_000)  # imports make objects by the ten thousand, none of them to be collected
    sys.meta_path.insert(0, _NoPandas())
    try:
        app()
    except SystemExit as end:
        if end.code == STOPPED:
            # If Ctrl-C came while Python ran generated code (as imports do), Python would kill itself at its end.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(STOPPED)
        raise


class _NoPandas:
    """Arrow imports pandas, where there is any, to see whether what it is given is from there. Nothing in here is."""

    def find_spec(self, name: str, *rest: object) -> None:
        """Spare a command the time, which is as long as that of a small fit."""
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)


def _pool(table: Held, scheduler: str | None) -> Pool:
    """Keep the clients here, or give them to the workers of a dask scheduler."""
    if scheduler is None:
        from .pool import LocalPool

        return LocalPool(table)
    try:
        from .cluster import DaskPool, connect
    except ImportError:
        raise SettingsError("--dask needs dask.distributed: install mixfed[dask]") from None
    return DaskPool(connect(scheduler), table)


def _say(text: str, quiet: bool) -> None:
    if not quiet:
        typer.echo(text)


def _save_simulation(made: Simulation, out: Path, quiet: bool = False) -> None:
    """Write a table and, next to it, the truth about it."""
    from .tables import write_json, write_parquet

    out.parent.mkdir(parents=True, exist_ok=True)
    write_parquet(out, made.columns())
    truth = out.with_suffix(".truth.json")
    write_json(truth, {"coef": made.theta.tolist(), "labels": made.labels.tolist()})
    said = (
        f"{out}: {made.clients.n_rows} rows of {made.clients.n_clients} clients, {made.clients.dim} features, "
        f"{len(made.theta)} kinds; the truth is in {truth}"
    )
    _say(said, quiet)


def _require_parquet(out: Path) -> None:
    if out.suffix != ".parquet":
        raise SettingsError(f"--out {out}: the name must end in .parquet")


def _columns_of(model: Model) -> tuple[str, str]:
    if model.client_column is None or model.target_column is None:
        raise SettingsError(
            "this model does not know which columns are client and target: take that of `mixfed fit`, or of a site"
        )
    return model.client_column, model.target_column


def _assignment(model: Model, data: Path) -> Assignment:
    """Find the kinds of the clients in a file or a packed folder."""
    from .store import open_held

    client, target = _columns_of(model)
    return model.assign(open_held(data, client, target, model.features, intercept=model.has_intercept))


def _export(
    found: Fit, assigned: Assignment | None, about: dict[str, Any], card: Path | None, coef: Path | None
) -> None:
    """Write a model card and the coefficients, where they are asked for."""
    if card is not None:
        from .card import write_card

        write_card(card, found, assigned, about)
    if coef is not None:
        from .results import write_coefficients

        write_coefficients(coef, found.model)
