"""A run across sites, from enrolment to the model, as the server conducts it.

The run lives in a folder of the server: the replies so far (`journal`), who takes part (``members.json``), a line for
every exchange (``exchanges.jsonl``), and in the end ``model.json``, ``trace.parquet`` and ``run.json``. Conducting the
same job in the same folder again goes on where it stopped, with the same members and to the same model. If a member is
gone for good, nothing that it said is kept: the run begins anew with the others, so the model is always the one of a
definite set of sites.
"""

import dataclasses
import json
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from .. import __version__
from ..core.errors import MixfedError, PoolError
from ..core.files import append_json, locked, write_json, write_text
from ..core.names import EXCHANGES, JOURNAL, MODEL, RUN, TRACE
from ..exchange.journal import JournalPool, OtherRunError, fingerprint
from ..model.fit import Fit, Watcher
from ..recipes import fit
from ..tables.write import write_parquet
from .job import Job
from .pool import FederatedPool, SitesLostError
from .transport import Transport

_LOOK_AGAIN = 2.0
"""Seconds between looks for a member that is missing."""


def conduct(transport: Transport, job: Job, folder: Path, watch: Watcher | None = None) -> Fit:
    """Run a job, or go on with it, and leave the results in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder, wait=False))
        except BlockingIOError:
            raise PoolError(f"another job is at work on the run {folder.name}: wait until it has ended") from None
        (folder / "error.txt").unlink(missing_ok=True)
        try:
            return _Conduct(transport, job, folder, watch).fit()
        except MixfedError as error:
            _complain(folder, str(error))
            raise
        except (ArithmeticError, ValueError, TypeError, LookupError, AssertionError) as error:
            # Sums that no check refused, and with which the mathematics failed: they would be no better the next time.
            (folder / JOURNAL).unlink(missing_ok=True)
            _complain(folder, failed(error))
            raise


def failed(error: Exception) -> str:
    """Say what an error that nobody foresaw means."""
    whose = "some site's sums cannot be right, or else this is a defect of mixfed"
    return f"the fit failed ({type(error).__name__}: {error}): {whose}"


def _complain(folder: Path, text: str) -> None:
    write_text(folder / "error.txt", " ".join(text.split()) + "\n")


class _Conduct:
    def __init__(self, transport: Transport, job: Job, folder: Path, watch: Watcher | None) -> None:
        self.transport, self.job, self.folder, self.watch = transport, job, folder, watch

    def fit(self) -> Fit:
        """Fit with the members of the run before, if there was one, else with all; without those who are lost."""
        pool = self._members_again()
        resume = pool is not None
        lost: dict[str, str] = {}
        while True:
            try:
                return self._fit(pool or self._pool(lost), resume)
            except SitesLostError as error:
                self._note(f"{error}; the run begins anew with the others")
                lost |= {name: f"it was lost: {reason}" for name, reason in error.lost.items()}
                pool, resume = None, False
            except OtherRunError:  # or one of another version, whose sums may be others
                self._note("the replies that were kept are of another job or version; the run begins anew")
                resume = False

    def _fit(self, pool: FederatedPool, resume: bool) -> Fit:
        job = self.job
        write_json(self.folder / "members.json", {name: site.digest for name, site in pool.members.items()})
        for name, reason in pool.absent.items():
            self._note(f"{name} does not take part: {reason}")
        settings = job.recipe_settings()
        title = fingerprint(pool, job.recipe, job.n_clusters, settings, job.loss, job.seed)
        with JournalPool(pool, self.folder / JOURNAL, title, resume=resume) as kept:
            found = fit(kept, pool.features, job.n_clusters, settings, loss=job.loss, seed=job.seed, watch=self.watch)
            (self.folder / MODEL).unlink(missing_ok=True)
            write_parquet(self.folder / TRACE, found.columns())
            without = pool.conclude(json.dumps(found.model.to_dict()))
            write_json(self.folder / RUN, self._about(pool, found) | {"without_model": without})
            found.model.save(self.folder / MODEL)
        return found

    def _pool(self, absent: Mapping[str, str], min_share: float | None = None) -> FederatedPool:
        job = self.job
        return FederatedPool(
            self.transport,
            absent=absent,
            intercept=job.intercept,
            roster=job.roster,
            timeout=job.timeout,
            tries=job.tries,
            min_share=job.min_share if min_share is None else min_share,
            watch=lambda exchange: self._append(dataclasses.asdict(exchange)),
        )

    def _members_again(self) -> FederatedPool | None:
        """Wait for the members of a run that was stopped; None if there was none, or they do not all come back."""
        try:
            members = json.loads((self.folder / "members.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not (self.folder / JOURNAL).exists() or not members or not isinstance(members, dict):
            return None
        deadline = time.monotonic() + self.job.patience
        while True:
            present = [name for name in members if name in self.transport.names]
            if len(present) == len(members):
                others = {name: "not in this run" for name in self.transport.names if name not in members}
                pool = self._pool(others, min_share=0.0)
                found = {name: site.digest for name, site in pool.members.items()}
                if found == members:
                    return pool
                changed = sorted(name for name in found if found[name] != members[name])
                if changed:
                    self._note(f"the data of {', '.join(changed)} have changed; the run begins anew")
                    return None
                present = list(found)
            if time.monotonic() > deadline:
                missing = sorted(set(members) - set(present))
                self._note(f"{', '.join(missing)} did not come back; the run begins anew with the others")
                return None
            time.sleep(_LOOK_AGAIN)

    def _about(self, pool: FederatedPool, found: Fit) -> dict[str, Any]:
        sites = {
            name: {
                "clients": site.clients,
                "rows": site.rows,
                "bytes_down": pool.asking.bytes_down[name],
                "bytes_up": pool.asking.bytes_up[name],
            }
            for name, site in pool.members.items()
        }
        about = {"version": __version__, "id": pool.run, "job": dataclasses.asdict(self.job), "sites": sites}
        return about | {"absent": pool.absent} | found.scalars()

    def _note(self, text: str) -> None:
        self._append({"note": text})

    def _append(self, line: dict[str, Any]) -> None:
        append_json(self.folder / EXCHANGES, {"time": time.time(), **line})
