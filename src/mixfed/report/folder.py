"""The folder of a fit: what `mixfed fit` writes, and what the other commands read."""

import csv
import dataclasses
import json
import platform
import shlex
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .. import __version__
from ..core.errors import DataError, SettingsError
from ..core.files import write_all, write_json, write_whole
from ..core.names import CLIENTS, MODEL, REPORT, RUN, TRACE
from ..exchange.base import Traffic
from ..model.assignment import Assignment
from ..model.fit import Fit
from ..model.model import Model
from ..tables.sources import read_parquet
from ..tables.write import parquet_writer

FILES = (MODEL, CLIENTS, TRACE, RUN, REPORT)


def about_run(data: str, command: Sequence[str], run: str, notes: Sequence[str] = ()) -> dict[str, Any]:
    """Say what a fit was made of and with, for whoever wants to get it again; ``run`` tells runs apart."""
    versions = {"mixfed": __version__, "python": platform.python_version()}
    versions |= {name: version(name) for name in ("numba", "numpy", "pyarrow")}
    return {"data": data, "command": shlex.join(command), "versions": versions, "run": run, "notes": list(notes)}


def check_same_run(folder: Path, run: str) -> None:
    """Refuse to go on with a run in a folder that has the results of another."""
    if _read_run(folder / RUN).get("run", run) != run:
        raise SettingsError(
            f"{folder}: it has the results of other data or settings: choose another --out, "
            "or start anew without --resume"
        )


def write_results(folder: Path, found: Fit, assigned: Assignment, about: dict[str, Any]) -> None:
    """Write all that came of a fit; what was there before is replaced when all of it is whole."""
    from . import write_report

    about_report = about | {"folder": str(folder)}
    write_all(
        {
            folder / CLIENTS: parquet_writer(assigned.columns()),
            folder / TRACE: parquet_writer(found.columns()),
            folder / RUN: lambda path: write_json(path, found.scalars() | about),
            folder / REPORT: lambda path: write_report(path, found, assigned, about_report),
            folder / MODEL: found.model.save,
        }
    )


def read_results(folder: Path) -> tuple[Fit, Assignment | None, dict[str, Any]]:
    """Read a folder of results. Of one that an earlier version wrote, or a federation, some parts are missing."""
    model = Model.load(folder)
    about = _read_run(folder / RUN)
    trace = read_parquet(folder / TRACE).to_pylist() if (folder / TRACE).exists() else []
    traffic = Traffic(*(about.get(item.name, 0) for item in dataclasses.fields(Traffic)))
    found = Fit(model, trace, traffic, about.get("seconds", {}), about.get("stop", ""))
    return found, read_assignment(folder, model), about | {"folder": str(folder)}


def read_assignment(folder: Path, model: Model) -> Assignment | None:
    """Read the kinds of the clients that were in the fit; None if they are not there."""
    path = folder / CLIENTS
    if not path.exists():
        return None
    table = read_parquet(path)
    names = ["client", "rows", *(f"probability_{j}" for j in range(model.n_clusters))]
    names += [f"effects_{j}" for j in range(model.n_clusters)] if model.personal else []
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise DataError(f"{path}: it has no column '{missing[0]}', so it does not belong to the model beside it")
    return Assignment.from_table(table, model.n_clusters)


def write_coefficients(path: Path, model: Model) -> None:
    """Write the coefficients as CSV: one line for each kind and column, with its standard error."""
    errors = model.theta_error

    def write(partial: Path) -> None:
        with partial.open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            lines.writerow(["kind", "feature", "coefficient", "standard_error"])
            for j, theta in enumerate(model.theta.tolist()):
                for place, name in enumerate(model.terms):
                    lines.writerow([j, name, theta[place], "" if errors is None else float(errors[j, place])])

    write_whole(path, write)


def _read_run(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path}: damaged ({error}): remove it, or fit again") from error
    if not isinstance(about, dict):
        raise DataError(f"{path}: damaged: remove it, or fit again")
    return about
