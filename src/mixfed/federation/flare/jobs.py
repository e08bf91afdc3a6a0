"""A job of NVIDIA FLARE that fits across sites: a few small files of settings, and no code.

The files name classes that the parties have installed: the engine's two ends of its Collab interface, and our ends in
`flare`. What to fit is in a file for the server alone.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import SettingsError
from ...core.files import write_json
from ...core.names import EXCHANGES, MODEL, RUN, TRACE
from ...recipes.settings import check_keys
from ..job import Job

CONTROLLER = "nvflare.collab.runtime.controller.CollabController"
CONDUCTOR = "mixfed.federation.flare.Conductor"
EXECUTOR = "nvflare.collab.runtime.executor.CollabExecutor"
ANSWERER = "mixfed.federation.flare.Answerer"
"""The classes: the engine's and ours, at the server and at a site."""
RUNS = "runs"
"""The folder in the server's kit that has a folder for each run, and in the administrator's with a file for each."""
RESULT = "mixfed"
"""The folder in what the engine keeps of a job that has the result."""
RESULTS = (MODEL, TRACE, RUN, EXCHANGES)
"""What the result consists of; the journal stays at the server."""
FAILURE = "failure.json"
"""What there is instead if the run has failed: why, and whether it may go better another time."""
PROGRESS = "mixfed.progress"
"""The command by which a running job is asked how far it is."""
_DESCRIPTION = "mixfed.json"


@dataclass(frozen=True)
class NamedJob:
    """A run by its name, under which it can go on, what it is to fit and with whom."""

    name: str
    job: Job
    sites: tuple[str, ...]
    """All sites of the federation."""
    present: tuple[str, ...] = ()
    """Those that were connected when it was submitted."""

    def save(self, path: Path) -> None:
        """Write it down."""
        path.parent.mkdir(parents=True, exist_ok=True)
        job = dataclasses.asdict(self.job)
        write_json(path, {"run": self.name, "sites": self.sites, "present": self.present, "job": job})

    @classmethod
    def load(cls, path: Path) -> NamedJob:
        """Read what `save` wrote."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            check_keys(content["job"], [item.name for item in dataclasses.fields(Job)], "unknown key")
            return cls(content["run"], Job(**content["job"]), tuple(content["sites"]), tuple(content["present"]))
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise SettingsError(f"{path}: not a run of mixfed ({error})") from None


def write_job(folder: Path, run: NamedJob) -> None:
    """Write the job for a run with the sites that are present, to be submitted."""
    conductor = {"id": "conductor", "path": CONDUCTOR, "args": {}}
    answerer = {"id": "answerer", "path": ANSWERER, "args": {}}
    controller = {"id": "controller", "path": CONTROLLER, "args": {"server_obj_id": conductor["id"]}}
    executor = {"tasks": ["*"], "executor": {"path": EXECUTOR, "args": {"client_obj_id": answerer["id"]}}}
    files: dict[str, dict[str, Any]] = {
        "meta.json": {
            "name": run.name,
            "resource_spec": {},
            "min_clients": 1,  # how many sites are enough is for the run to say
            "deploy_map": {"server": ["server"], "site": list(run.present)},
        },
        "server/config/config_fed_server.json": {"workflows": [controller], "components": [conductor]},
        "site/config/config_fed_client.json": {"executors": [executor], "components": [answerer]},
    }
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"format_version": 2, **content} if "config" in name else content)
    # Not among the engine's settings: in those it looks for names in braces.
    run.save(folder / "server" / "config" / _DESCRIPTION)


def read_job(config: Path) -> NamedJob:
    """Read, at the server, what a job is to fit."""
    return NamedJob.load(config / _DESCRIPTION)
