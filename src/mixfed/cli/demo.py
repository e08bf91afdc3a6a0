"""Commands to try mixfed with: `simulate` and `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import SettingsError
from . import options
from .fit import fit
from .options import path_option, say
from .usage import Command

if TYPE_CHECKING:
    from ..evaluation.simulation import Simulation


@click.command(cls=Command)
@path_option("--out", required=True, help="Where to write the table (.parquet).")
@click.option("--clients", "n_clients", type=int, help="Number of clients. [10000]")
@click.option("--dim", type=int, help="Number of features. [30, or the family's]")
@click.option("--clusters", "n_clusters", type=int, help="Number of kinds. [5, or the family's]")
@click.option("--family", help="A hard family: nested, nested-unbalanced, rare, mirror, noisy, wide, skewed.")
@click.option(
    "--of",
    "target",
    type=click.Choice(["gaussian", "student", "binomial", "poisson"]),
    help="What targets are: numbers, ones with outliers, 0 or 1, counts. [gaussian]",
)
@click.option("--noise", type=float, help="Standard deviation of the noise. [0.3]")
@click.option("--radius", type=float, help="Norm of the models. [1.5]")
@click.option(
    "--law", type=click.Choice(["normal", "uniform", "rademacher"]), help="Distribution of the features. [normal]"
)
@click.option("--spread", type=float, help="Spread of each kind's covariance. [1]")
@click.option("--degree", type=int, help="Degree of the polynomial features. [1]")
@click.option("--most-rows", type=int, help="Most rows of an ordinary client. [50]")
@click.option("--anchors", "n_anchors", type=int, help="Clients with many rows. [0]")
@click.option("--anchor-rows", type=int, help="Rows of each of those. [1000]")
@click.option("--seed", default=0, help="Same seed, same table.")
@options.quiet
def simulate(out: Path, family: str | None, seed: int, quiet: bool, **more: Any) -> None:
    """Simulate a table of clients, with the truth in a .truth.json next to it.

    Example: `mixfed simulate --clients 2000 --dim 10 --clusters 3 --out clients.parquet`
    """
    from ..evaluation import simulation

    if out.suffix != ".parquet":
        raise SettingsError(f"--out {out}: the name must end in .parquet")
    _save_simulation(simulation.simulate(family, seed=seed, **more), out, quiet)


@click.command(cls=Command)
@path_option("--out", default="demo", help="The folder to write in.")
@click.option("--seed", default=0, help="Same seed, same demo.")
@click.pass_context
def demo(context: click.Context, out: Path, seed: int) -> None:
    """Simulate clients of four kinds, two by two alike, fit them without a hint, and compare with the truth.

    Example: `mixfed demo`
    """
    from ..evaluation.metrics import bottleneck_distance, label_agreement
    from ..evaluation.simulation import simulate as make
    from ..model.model import Model

    data, made = out / "table.parquet", make("nested", n_clients=5000, seed=seed)
    _save_simulation(made, data)
    context.invoke(fit, data=data, client="client", target="y", out=out, intercept=False, seed=seed)
    model = Model.load(out)
    if model.n_clusters != len(made.theta):
        click.echo(f"Against the truth: {model.n_clusters} kinds were found, there are {len(made.theta)}")
        return
    error = bottleneck_distance(model.theta, made.theta)
    floor = bottleneck_distance(made.oracle(), made.theta)
    agreement = label_agreement(model.assign(made.clients).cluster, made.labels)
    few = (made.clients.rows <= 3).mean()
    click.echo(
        f"Against the truth: error {error:.4f}, {error / floor:.2f} times that of least squares with the kinds known "
        f"({floor:.4f}); {agreement:.1%} of clients in their own kind, though {few:.0%} of them have two or three rows."
    )


def _save_simulation(made: Simulation, out: Path, quiet: bool = False) -> None:
    """Write a table and, next to it, the truth about it."""
    from ..core.files import write_all, write_json
    from ..tables.write import parquet_writer

    out.parent.mkdir(parents=True, exist_ok=True)
    truth = out.with_suffix(".truth.json")
    told = {"coef": made.theta.tolist(), "labels": made.labels.tolist()}
    write_all({out: parquet_writer(made.columns()), truth: lambda path: write_json(path, told)})
    said = (
        f"{out}: {made.clients.n_rows} rows of {made.clients.n_clients} clients, {made.clients.dim} features, "
        f"{len(made.theta)} kinds; the truth is in {truth}"
    )
    say(said, quiet)
