"""A job of a federation is followed until it ends, and what it found is fetched and shown."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.errors import PoolError

if TYPE_CHECKING:
    from ..federation.flare.admin import AdminSession, Result
    from ..federation.flare.jobs import NamedJob
    from ..federation.flare.kits import Kit
    from ..model.fit import Watcher


def fetch_results(kit: Kit, run: NamedJob, out: Path, *, quiet: bool, again: bool = False) -> Result:
    """Have a run done, show how it gets on, and fetch what came of it."""
    from ..core.names import REPORT
    from ..federation.flare.admin import DONE, AdminSession, read_result
    from ..report import write_report
    from . import progress

    with AdminSession(kit) as session, progress.Rounds(quiet=quiet) as watch:
        job = session.latest(run) if again else None
        if job is None or follow(session, job, watch) != DONE:
            job = session.go_on(run) if again else session.submit(run)
            follow(session, job, watch)
        session.fetch(job, out)
    found = read_result(out)
    write_report(out / REPORT, found.fit, None, {"folder": str(out), "versions": {"mixfed": found.about["version"]}})
    return found


def follow(session: AdminSession, job: str, watch: Watcher) -> str:
    """Wait for a job, or stop it with the command."""
    try:
        return session.follow(job, watch)
    except KeyboardInterrupt:
        session.abort(job)
        raise


@contextmanager
def tell_how_to_go_on(kit: Kit, run: NamedJob, out: Path) -> Iterator[None]:
    """Say with what ends a run before its time how it goes on."""
    from ..federation.flare.admin import is_recorded

    command = ["mixfed", "federate", "resume", str(kit.path), "--run", run.name, "--out", str(out)]
    way = f"`{shlex.join(command)}` goes on"
    try:
        yield
    except PoolError as error:
        raise PoolError(f"{error}; {way}" if is_recorded(kit, run) else str(error)) from None
    except KeyboardInterrupt:
        raise KeyboardInterrupt(*[way] if is_recorded(kit, run) else []) from None


def show_results(found: Result, out: Path | None, as_json: bool = False) -> None:
    """Show what a job found, or print it as JSON."""
    from . import screen

    if as_json:
        click.echo(json.dumps(found.scalars()))
        return
    screen.show(*screen.summary(found.fit, found.fit.model), *screen.federation_summary(found))
    if out is not None:
        click.echo(f"Wrote model.json, report.html, trace.parquet, run.json and exchanges.jsonl in {out}")
