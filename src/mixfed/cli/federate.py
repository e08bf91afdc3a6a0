"""``mixfed federate``: the same fit across sites, on NVIDIA FLARE."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import shlex
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import PoolError, SettingsError
from ..core.names import MODEL, REPORT
from . import options
from .options import argument, parse_clusters, path_option, read_settings, split_names
from .usage import Group

if TYPE_CHECKING:
    from ..federation.flare.admin import Result
    from ..federation.flare.jobs import NamedJob
    from ..federation.flare.kits import Kit
    from ..federation.job import Job

_REACHING = 20.0
"""Seconds that a site may take to reach the server before the command returns without it."""

_kits = argument("path", "A kit, or a folder of kits.")
_admin_kit = argument("kit", "The administrator's kit.")
_out = path_option("--out", required=True, help="The folder to write the results in.")


@click.group(cls=Group)
def federate() -> None:
    """Fit across sites: rows stay with their owner. On NVIDIA FLARE, with a certificate for each party."""


@federate.command()
@argument("folder", "A new folder, for a kit of each party.")
@click.option("--sites", required=True, help="Comma-separated names of the sites.")
@click.option("--server", default="localhost", help="The host under which sites reach the server.")
@click.option("--port", default=8002, help="The port that the server listens on.")
@click.option("--days", default=360, help="How long the certificates last, 360 days at most.")
def init(folder: Path, sites: str, server: str, port: int, days: int) -> None:
    """Make the kits of a federation: a folder with a certificate for the server, each site and the administrator.

    Example: `mixfed federate init federation --sites north,south --server fit.example.org`
    """
    _require_engine()
    from ..federation.flare.kits import AUTHORITY, provision

    made = provision(folder, split_names(sites) or [], server, port, days)
    for kit in made:
        click.echo(f"{folder / kit.path.name}: the kit of {_the(kit)}")
    click.echo(
        f"{folder / AUTHORITY}: the certificate authority; whoever has it can make members, so keep it to yourself"
    )
    click.echo(f"The certificates last {days} days. Give each party its folder; its README.md says what to do.")


@federate.command()
@_kits
def up(path: Path) -> None:
    """Start a server or a site in the background, after a look at its settings and its table.

    Example: `mixfed federate up site-1`
    """
    _require_engine()
    from ..federation.flare import processes
    from ..federation.flare.kits import Role, open_kit, open_kits
    from ..federation.site_file import open_site

    kits = [kit for kit in open_kits(path) if kit.role is not Role.ADMIN]
    if not kits:
        open_kit(path, Role.SERVER, Role.SITE)
    for kit in sorted(kits, key=lambda kit: kit.role is not Role.SERVER):
        if kit.role is Role.SITE:
            site = open_site(kit.settings)
            clients, names = site.clients, site.clients.dim - site.clients.intercept
            if clients.n_clients < site.min_clients:
                raise SettingsError(
                    f"{kit.settings}: {clients.n_clients} clients, below min_clients = {site.min_clients}: "
                    "this site would contribute nothing"
                )
            click.echo(f"{kit.name}: {clients.n_clients} clients, {clients.n_rows} rows, {names} features")
        party = processes.start(kit)
        there = party.wait(_REACHING)
        if there:
            what = f"listens on {kit.address}" if kit.role is Role.SERVER else f"is registered with {kit.address}"
        else:
            what = f"is running and keeps trying to reach {kit.address} ({party.last_complaint()})"
        click.echo(f"{kit.name} {what}; process {party.process.pid}, log {kit.log}")


@federate.command()
@_kits
def down(path: Path) -> None:
    """Stop what was started from a kit, with all its processes.

    Example: `mixfed federate down site-1`
    """
    _require_engine()
    from ..federation.flare import processes
    from ..federation.flare.kits import open_kits

    count = processes.stop(open_kits(path))
    click.echo(f"{path}: {count} process{'es' * (count > 1)} stopped" if count else f"{path}: nothing was running")


@federate.command()
@_admin_kit
@_out
@options.what_to_fit
@click.option("--run", help="A name for the run. [the time]")
@click.option("--timeout", default=30.0, help="Seconds that a site has for an answer; then it is asked again.")
@click.option("--tries", default=8, help="Times that a site is asked before it is lost.")
@click.option("--min-share", default=0.5, help="Share of the sites that must take part.")
@click.option("--patience", default=60.0, help="Seconds that a run which goes on waits for a site that is missing.")
@options.as_json
def submit(kit: Path, out: Path, run: str | None, as_json: bool, **job: Any) -> None:
    """Fit across the sites that are connected, wait for the model and fetch it.

    Example: `mixfed federate submit admin --out result`
    """
    _require_engine()
    from ..federation.flare.admin import new_run
    from ..federation.flare.kits import Role, open_kit
    from .output_checks import check_folder

    check_folder(out)
    admin = open_kit(kit, Role.ADMIN)
    new = new_run(admin, run, _job(**job))
    out.mkdir(parents=True, exist_ok=True)  # or why not: before the work, not after it
    _carry_out(admin, new, out, as_json)


@federate.command()
@_admin_kit
@_out
@click.option("--run", help="The name of the run. [the last]")
@options.as_json
def resume(kit: Path, out: Path, run: str | None, as_json: bool) -> None:
    """Go on with a run that was cut off, from the replies that the server has kept.

    Example: `mixfed federate resume admin --out result`
    """
    _require_engine()
    from ..federation.flare.admin import old_run
    from ..federation.flare.kits import Role, open_kit
    from .output_checks import check_folder

    check_folder(out)
    admin = open_kit(kit, Role.ADMIN)
    _carry_out(admin, old_run(admin, run), out, as_json, again=True)


@federate.command()
@_admin_kit
@options.as_json
def status(kit: Path, as_json: bool) -> None:
    """Say which sites are connected and what has been run.

    Example: `mixfed federate status admin`
    """
    _require_engine()
    from ..federation.flare.admin import AdminSession
    from ..federation.flare.kits import Role, open_kit
    from . import screen

    admin = open_kit(kit, Role.ADMIN)
    with AdminSession(admin) as session:
        sites, jobs = session.sites(), session.jobs()
    missing = sorted(set(admin.sites()) - set(sites))
    if as_json:
        told = [dataclasses.asdict(job) for job in jobs]
        click.echo(json.dumps({"sites": sites, "missing": missing, "jobs": told}))
        return
    click.echo(f"Connected sites: {', '.join(sites) or 'none'}; missing: {', '.join(missing) or 'none'}")
    if jobs:
        screen.show(screen.jobs_table(jobs))


@federate.command()
@options.data
@options.columns
@click.option("--sites", default=4, help="Number of sites to divide the clients among.")
@path_option("--out", help="A folder to write the results in.")
@path_option("--kits", help="A new folder for the kits. [a temporary one]")
@options.features
@options.what_to_fit
@options.as_json
def local(
    data: Path,
    client: str | None,
    target: str | None,
    sites: int,
    out: Path | None,
    kits: Path | None,
    features: str | None,
    as_json: bool,
    **what: Any,
) -> None:
    """Try a federation on this machine: a server and sites as processes, against the same fit in this one.

    Example: `mixfed federate local clients.parquet --client client --target y --sites 4`
    """
    _require_engine()
    from ..clients.local import LocalPool
    from ..clients.store import open_clients
    from ..federation.flare.admin import new_run
    from ..federation.flare.local import divide, largest_difference, running
    from ..recipes import fit
    from . import progress, screen
    from .columns import need_columns, notes_on, show_notes
    from .output_checks import check_folder

    if out is not None:
        check_folder(out)
    job = _job(**what)
    client, target = need_columns(data, client, target, "federate local", quiet=as_json)
    table = open_clients(data, client, target, split_names(features), intercept=job.intercept)
    if not as_json:
        show_notes(notes_on(data, table, client, target, features, job.loss))
    with ExitStack() as stack:
        place = kits or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mixfed-"))) / "kits"
        made = divide(table, client, target, sites, place)
        with progress.Rounds(quiet=as_json) as watch:
            pool, settings = LocalPool(table), job.recipe_settings()
            alone = fit(pool, table.features, job.n_clusters, settings, loss=job.loss, seed=job.seed, watch=watch)
        admin = stack.enter_context(running(made))
        found = _fetch_results(admin, new_run(admin, "local", job), out or place / "result", quiet=as_json)
    difference = largest_difference(alone.model, found.fit.model)
    if out is not None:  # here all sites have the same columns
        dataclasses.replace(found.fit.model, client_column=client, target_column=target).save(out / MODEL)
    if as_json:
        click.echo(json.dumps(found.scalars() | {"largest_difference": difference}))
        return
    _show_results(found, out)
    screen.show(*screen.comparison(found.fit, alone, difference))


def _require_engine() -> None:
    if importlib.util.find_spec("nvflare") is None:
        raise SettingsError("mixfed federate needs NVIDIA FLARE: install mixfed[flare]")


def _the(kit: Kit) -> str:
    return f"site {kit.name}" if kit.role == "site" else f"the {'administrator' if kit.role == 'admin' else kit.role}"


def _job(
    clusters: str, recipe: str, family: str, config: Path | None, intercept: bool, seed: int, **waiting: Any
) -> Job:
    """Put together what to fit, and how long to wait for whom."""
    from ..federation.job import Job

    n_clusters = parse_clusters(clusters)
    settings = dataclasses.asdict(read_settings(recipe, config, n_clusters))
    given = {name: value for name, value in settings.items() if value is not None}
    return Job(n_clusters, recipe, given, family, intercept, seed, **waiting)


def _carry_out(kit: Kit, run: NamedJob, out: Path, as_json: bool, *, again: bool = False) -> None:
    """Have a run done, or gone on with, and show what came of it; what ends it before its time says how it goes on."""
    from ..federation.flare.admin import run_file

    try:
        found = _fetch_results(kit, run, out, quiet=as_json, again=again)
    except (PoolError, KeyboardInterrupt) as error:
        if not run_file(kit, run.name).exists():
            raise
        command = ["mixfed", "federate", "resume", str(kit.path), "--run", run.name, "--out", str(out)]
        raise type(error)("; ".join([*map(str, error.args), f"`{shlex.join(command)}` goes on"])) from None
    if as_json:
        click.echo(json.dumps(found.scalars()))
    else:
        _show_results(found, out)


def _fetch_results(kit: Kit, run: NamedJob, out: Path, *, quiet: bool, again: bool = False) -> Result:
    """Have a run done, show how it gets on, and fetch what came of it; with the command, the job is stopped."""
    from ..federation.flare.admin import DONE, AdminSession, read_result
    from ..report import write_report
    from . import progress

    with AdminSession(kit) as session, progress.Rounds(quiet) as watch:
        job = session.latest(run) if again else None
        if job is None or session.follow(job, watch) != DONE:
            job = session.go_on(run) if again else session.submit(run)
            session.follow(job, watch)
        session.fetch(job, out)
    found = read_result(out)
    write_report(out / REPORT, found.fit, None, {"folder": str(out), "versions": {"mixfed": found.about["version"]}})
    return found


def _show_results(found: Result, out: Path | None) -> None:
    from . import screen

    screen.show(*screen.summary(found.fit, found.fit.model), *screen.federation_summary(found))
    if out is not None:
        click.echo(f"Wrote model.json, report.html, trace.parquet, run.json and exchanges.jsonl in {out}")
