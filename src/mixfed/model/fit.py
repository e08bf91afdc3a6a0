"""A run: what surrounds the steps of a recipe, and what comes out in the end."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..exchange.base import Traffic
from .model import Model

_PHASES = {
    "fedmd": "Phase 1, moment descent",
    "fedx": "Phase 2, refinement",
    "starting": "Start of the job",
    "survey": "Survey",
    "summed starts": "Starts, as sums",
    "kinds": "How many kinds",
    "refine": "Refinement",
    "second look": "Second look",
    "degrees": "Degrees of freedom",
    "local updates": "Local updates",
    "personal": "Personal models",
}


def phase_name(phase: str) -> str:
    """Name a phase for people."""
    return _PHASES.get(phase, phase)


TOO_FEW = "a kind has too few clients or rows to count"
"""Why a number of kinds may not be chosen."""


class Stop(Enum):
    """Why a recipe ended."""

    MAXIMUM = "the likelihood is at its maximum"
    STILL = "the models stopped moving"
    LABELS = "no client changed its kind"
    ROUNDS = "all rounds were run"


@dataclass(frozen=True)
class Progress:
    """One round has ended."""

    phase: str
    round: int
    rounds: int
    info: Any


Watcher = Callable[[Progress], None]


@dataclass(frozen=True, eq=False)
class Fit:
    """A model and how it came about."""

    model: Model
    trace: list[dict[str, Any]]
    """One record per round."""
    traffic: Traffic
    seconds: dict[str, float]
    """Time spent in each phase since the run was started or resumed."""
    stop: str

    def columns(self) -> dict[str, list[Any]]:
        """Give the columns of ``trace.parquet``: a row per round."""
        names = list(dict.fromkeys(name for record in self.trace for name in record))
        return {name: [record.get(name) for record in self.trace] for name in names}

    def phases(self) -> dict[str, Traffic]:
        """Say what each phase took; what came before the first round counts to its phase."""
        phases: dict[str, Traffic] = {}
        before = Traffic()
        for record in self.trace:
            now = Traffic(*(record[item.name] for item in dataclasses.fields(Traffic)))
            phases.setdefault(record["phase"], Traffic()).add(now.since(before))
            before = now
        return phases

    def _repr_html_(self) -> str:
        from ..report.notebook import fit_html

        return fit_html(self)

    def scalars(self) -> dict[str, Any]:
        """Give what ``--json`` says of the run."""
        about = {"seconds": self.seconds, "rounds": len(self.trace), "stop": self.stop}
        phases = {name: dataclasses.asdict(traffic) for name, traffic in self.phases().items()}
        return about | dataclasses.asdict(self.traffic) | {"phases": phases}
