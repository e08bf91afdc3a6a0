"""The command that compares kinds with what else one might do: `compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from .options import (
    AsJson,
    Client,
    Clusters,
    Config,
    Data,
    Features,
    Intercept,
    Quiet,
    Seed,
    Target,
    auto_settings,
    parse_clusters,
    split_names,
    tidy,
)

app = typer.Typer()


@app.command()
@tidy
def compare(
    data: Data,
    *,
    client: Client = None,
    target: Target = None,
    features: Features = None,
    clusters: Clusters = "auto",
    splits: Annotated[int, typer.Option(help="Times that rows are held out anew.", min=1)] = 5,
    share: Annotated[float, typer.Option(help="Share of each client's rows to hold out.")] = 0.3,
    time: Annotated[
        str | None, typer.Option(help="A column of times: each client's latest rows are held out, once.")
    ] = None,
    intercept: Intercept = True,
    config: Config = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="A folder for comparison.json and the figure, comparison.svg.")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare held-out errors: one model, one per client, mixed models, kinds, and kinds with personal models.

    Some rows of every client are held out, everybody is fitted to the others and predicts them.

    Example: `mixfed compare clients.parquet --client client --target y --splits 2`
    """
    from ..evaluation.compare import RIVALS, compare as run_comparison
    from ..tables.reading import planned, read_rows
    from . import progress, screen
    from .columns import need_columns
    from .output_checks import check_folder

    silent = quiet or as_json
    settings = auto_settings(config)
    client, target = need_columns(data, client, target, "compare", quiet=silent)
    if out is not None:
        check_folder(out, data)
    rows = read_rows(*planned(data, client, target, split_names(features)), intercept=intercept)
    when = None if time is None else read_rows(*planned(data, client, None, [time]), intercept=False).phi[:, 0]
    with progress.Trials(silent, len(RIVALS) * (1 if time else splits)) as watch:
        found = run_comparison(
            rows, parse_clusters(clusters), settings, splits=splits, share=share, when=when, seed=seed, watch=watch
        )
    if out is not None:
        from ..core.files import write_all, write_json, write_text
        from ..report.comparison_chart import comparison_svg

        out.mkdir(parents=True, exist_ok=True)
        picture = comparison_svg(found)
        write_all(
            {
                out / "comparison.svg": lambda path: write_text(path, picture),
                out / "comparison.json": lambda path: write_json(path, found.to_dict()),
            }
        )
    if as_json:
        typer.echo(json.dumps(found.to_dict()))
    elif not quiet:
        screen.show(*screen.comparison_table(found))
