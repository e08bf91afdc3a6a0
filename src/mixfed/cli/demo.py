"""Commands to try mixfed with: `simulate` and `demo`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.errors import SettingsError
from .fit import fit
from .options import Quiet, say, tidy

if TYPE_CHECKING:
    from ..evaluation.simulation import Simulation

app = typer.Typer()


class Law(StrEnum):
    """The distribution of a feature."""

    normal = "normal"
    uniform = "uniform"
    rademacher = "rademacher"


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
    from ..evaluation import simulation

    if out.suffix != ".parquet":
        raise SettingsError(f"--out {out}: the name must end in .parquet")
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
def demo(
    out: Annotated[Path, typer.Option(help="The folder to write in.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Same seed, same demo.")] = 0,
) -> None:
    """Simulate clients of four kinds, two by two alike, fit them without a hint, and compare with the truth.

    Example: `mixfed demo`
    """
    from ..evaluation.metrics import bottleneck_distance, label_agreement
    from ..evaluation.simulation import simulate as make
    from ..model.model import Model

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
