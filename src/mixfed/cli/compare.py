"""The command that compares kinds with what else one might do: `compare`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from . import options
from .options import auto_settings, parse_clusters, path_option, split_names
from .usage import Command


@click.command(cls=Command)
@options.data
@options.columns
@options.features
@options.clusters
@click.option("--splits", type=click.IntRange(min=1), default=5, help="Times that rows are held out anew.")
@click.option("--share", default=0.3, help="Share of each client's rows to hold out.")
@click.option("--time", help="A column of times: each client's latest rows are held out, once.")
@options.configured
@path_option("--out", help="A folder for comparison.json and the figure, comparison.svg.")
@options.as_json
@options.quiet
def compare(
    data: Path,
    client: str | None,
    target: str | None,
    features: str | None,
    clusters: str,
    splits: int,
    share: float,
    time: str | None,
    intercept: bool,
    config: Path | None,
    seed: int,
    out: Path | None,
    as_json: bool,
    quiet: bool,
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
        click.echo(json.dumps(found.to_dict()))
    elif not quiet:
        screen.show(*screen.comparison_table(found))
