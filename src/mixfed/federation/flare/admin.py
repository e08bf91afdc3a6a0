"""The administrator at the server: what is there, what runs; submitting a run, following it, fetching its result."""

import contextlib
import dataclasses
import io
import json
import logging
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, TypeVar

from ...core.errors import MixfedError, PoolError, SettingsError
from ...core.names import EXCHANGES, MODEL, RUN, TRACE
from ...exchange.base import Traffic
from ...model.fit import Fit, Progress, Watcher
from ...model.model import Model
from ..job import Job
from .jobs import FAILURE, PROGRESS, RESULT, RESULTS, RUNS, NamedJob, write_job
from .kits import NAME, NAME_RULE, Kit

T = TypeVar("T")
_CONNECTING = 10.0
"""Seconds to wait for the server."""
_POLL = 0.4
DONE = "FINISHED:COMPLETED"
"""The status of a job that has done its run."""
CUT_OFF = "CUT OFF"
"""The status of a job that the server has lost."""


@dataclass(frozen=True)
class Submitted:
    """A job that the server has."""

    identity: str
    run: str
    status: str
    submitted: str


def _starting(done: int) -> Progress:
    """Say that the engine is at work: it takes some seconds before a run begins."""
    return Progress("starting", done, 1, SimpleNamespace(note="" if done else "the parties start their workers"))


class AdminSession:
    """The administrator's line to the server."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit

    def __enter__(self) -> Self:
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        # What matters of what the engine says is raised.
        self._logging = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            self._session = self._call(
                new_secure_session,
                self.kit.name,
                str(self.kit.path),
                timeout=_CONNECTING,
                auto_login_max_tries=1,
            )
        except BaseException:
            logging.disable(self._logging)
            raise
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(Exception), _nothing_printed():
            self._session.close()
        logging.disable(self._logging)

    def sites(self) -> list[str]:
        """Name the sites that are connected."""
        return sorted(site.name for site in self._call(self._session.get_system_info).client_info)

    def server_start(self) -> float:
        """Say when the server was started."""
        return float(self._call(self._session.get_system_info).server_info.start_time)

    def jobs(self) -> list[Submitted]:
        """List the jobs that the server knows of, oldest first."""
        known = self._call(self._session.list_jobs)
        at_work = {job.job_id for job in self._call(self._session.get_system_info).job_info}
        jobs = []
        for job in known:
            # After a crash of the server the engine says of a job for ever that it is running.
            cut_off = job["status"] in ("DISPATCHED", "RUNNING") and job["job_id"] not in at_work
            status = CUT_OFF if cut_off else job["status"]
            jobs.append(Submitted(job["job_id"], job["job_name"], status, job["submit_time"]))
        return sorted(jobs, key=lambda job: job.submitted)

    def submit(self, run: NamedJob) -> str:
        """Have the server start a run, with all sites that are connected; give the identity of the job."""
        run = dataclasses.replace(run, present=tuple(self.sites()))
        if not run.present:
            raise PoolError("no site is connected to the server: start them with `mixfed federate up`")
        run.save(run_file(self.kit, run.name))
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / run.name
            write_job(folder, run)
            identity: str = self._call(self._session.submit_job, str(folder))
        return identity

    def latest(self, run: NamedJob) -> str | None:
        """Give the identity of the last job for a run, if it is still at work or has done it."""
        job = next((job for job in reversed(self.jobs()) if job.run == run.name), None)
        if job is None or job.status == CUT_OFF or (job.status.startswith("FINISHED") and job.status != DONE):
            return None
        return job.identity

    def go_on(self, run: NamedJob) -> str:
        """Have the server go on with a run as soon as the sites that it began with are back, or it has waited."""
        end = time.monotonic() + run.job.patience
        while not set(run.present) <= set(self.sites()) and time.monotonic() < end:
            time.sleep(1.0)
        return self.submit(run)

    def follow(self, job: str, watch: Watcher) -> str:
        """Wait until a job has ended, tell of its rounds as they end, and give its status; Ctrl-C stops it, too."""
        try:
            return self._follow(job, watch)
        except KeyboardInterrupt:
            self.abort(job)  # the run can go on later
            raise

    def _follow(self, job: str, watch: Watcher) -> str:
        # A job can be asked from when its run begins until it ends, and the server logs every question in vain.
        seen, begun, ended, start = 0, False, False, self.server_start()
        watch(_starting(0))
        while True:
            status: str | None = self._call(self._session.get_job_status, job)
            if status is None or status.startswith("FINISHED"):
                return status or "unknown"
            rounds = None if ended else self._rounds(job, seen)
            if rounds is None:
                ended = begun
                if self.server_start() != start:  # which does not know that it has lost the job
                    raise PoolError(f"the server at {self.kit.address} was started anew")
            elif not begun:
                watch(_starting(1))
                begun = True
            for phase, round_, of, note in rounds or ():
                watch(Progress(phase, round_, of, SimpleNamespace(note=note)))
                seen += 1
            time.sleep(_POLL if begun and not ended else 2 * _POLL)

    def abort(self, job: str) -> None:
        """Have the server stop a job."""
        self._call(self._session.abort_job, job)

    def fetch(self, job: str, out: Path) -> None:
        """Get the result of a job that has ended, or raise what went wrong."""
        with tempfile.TemporaryDirectory() as scratch:
            found = Path(self._call(self._session.download_job_result, job, scratch)) / "workspace" / RESULT
            if (found / FAILURE).exists():
                failure = json.loads((found / FAILURE).read_text(encoding="utf-8"))
                raise (PoolError if failure["passing"] else MixfedError)(failure["reason"])
            if not (found / MODEL).exists():
                raise PoolError(f"the job has ended without a model: {self._reason(job)}")
            out.mkdir(parents=True, exist_ok=True)
            # The model goes first and comes last, so that where there is one the other files belong to it.
            (out / MODEL).unlink(missing_ok=True)
            for name in reversed(RESULTS):
                shutil.copy(found / name, out)

    def _reason(self, job: str) -> str:
        """Say why a job never came to its run, as far as the engine does."""
        about = self._call(self._session.get_job_meta, job)
        refused = [text for text in about.get("job_deploy_detail", []) if not text.endswith(": OK")]
        return "; ".join(refused) or "the logs of the server and of the sites say why"

    def _rounds(self, job: str, seen: int) -> list[Any] | None:
        """Ask a job for the rounds that have ended since; None if it cannot be asked."""
        with contextlib.suppress(Exception), _nothing_printed():
            return list(self._session.do_app_command(job, PROGRESS, {"seen": seen})["rounds"])
        return None

    def _call(self, function: Callable[..., T], *arguments: Any, **more: Any) -> T:
        """Call the engine, and say in one line what went wrong."""
        from nvflare.fuel.flare_api import api_spec

        try:
            with _nothing_printed():
                return function(*arguments, **more)
        except (api_spec.NoConnection, api_spec.SessionClosed, ConnectionError) as error:
            raise PoolError(f"the server at {self.kit.address} does not answer ({error})") from None
        except (api_spec.AuthenticationError, api_spec.AuthorizationError) as error:
            raise SettingsError(f"the server at {self.kit.address} refuses {self.kit.name}: {error}") from None
        except MixfedError:
            raise
        except Exception as error:
            raise PoolError(f"the server at {self.kit.address} says: {error}") from None


@dataclass(frozen=True)
class Result:
    """What came of a run."""

    fit: Fit
    about: dict[str, Any]
    """The content of ``run.json``."""
    exchanges: list[dict[str, Any]]
    """One record per exchange."""

    @property
    def seconds_per_exchange(self) -> float:
        """The time that half of the exchanges took no longer than."""
        return float(statistics.median(exchange["seconds"] for exchange in self.exchanges))

    def scalars(self) -> dict[str, Any]:
        """Give what ``--json`` says of a federated run."""
        more = {name: self.about[name] for name in ("sites", "absent", "without_model")}
        more["seconds_per_exchange"] = self.seconds_per_exchange
        return self.fit.model.scalars() | self.fit.scalars() | more


def read_result(folder: Path) -> Result:
    """Read what `AdminSession.fetch` has put in a folder."""
    from ...tables.sources import read_parquet

    about = json.loads((folder / RUN).read_text(encoding="utf-8"))
    lines = [json.loads(line) for line in (folder / EXCHANGES).read_text(encoding="utf-8").splitlines()]
    traffic = Traffic(about["exchanges"], about["bytes_down"], about["bytes_up"])
    trace = read_parquet(folder / TRACE).to_pylist()
    fit = Fit(Model.load(folder), trace, traffic, about["seconds"], about["stop"])
    return Result(fit, about, [line for line in lines if "number" in line])


def new_run(kit: Kit, name: str | None, job: Job) -> NamedJob:
    """Name a run of the federation that an administrator's kit belongs to, by default after the time."""
    name = name if name is not None else time.strftime("run-%Y%m%d-%H%M%S")
    if not NAME.fullmatch(name):
        raise SettingsError(f"--run {name}: {NAME_RULE}")
    if run_file(kit, name).exists():
        raise SettingsError(f"--run {name}: there is a run of this name: resume it, or give another name")
    return NamedJob(name, job, kit.sites())


def old_run(kit: Kit, name: str | None) -> NamedJob:
    """Find a run that was submitted with this kit, by default the last."""
    runs = sorted((kit.path / RUNS).glob("*.json"), key=lambda path: path.stat().st_mtime)
    known = [path.stem for path in runs]
    if not known:
        raise SettingsError(f"{kit.path}: no run was submitted with this kit")
    if name is not None and name not in known:
        raise SettingsError(f"--run {name}: there is no such run; there are {', '.join(known)}")
    return NamedJob.load(run_file(kit, name if name is not None else known[-1]))


def run_file(kit: Kit, run: str) -> Path:
    """Give the file of a run in an administrator's kit: it is there once the run was submitted."""
    return kit.path / RUNS / f"{run}.json"


def _nothing_printed() -> contextlib.redirect_stdout[io.StringIO]:
    """Keep the engine from printing."""
    return contextlib.redirect_stdout(io.StringIO())
