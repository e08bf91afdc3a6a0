"""A run on disk: after any round it can be stopped and continued, bit for bit.

A checkpoint is one ``.npz`` file without pickle, put in place in one step. It carries a fingerprint of the data
and the settings, so that a run is never continued with others.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import Array
from .data import Clients
from .errors import SettingsError
from .tables import write_whole


@dataclass(frozen=True)
class Snapshot:
    """Where a run stood."""

    phase: str
    arrays: dict[str, Array]
    """The state of the phase."""
    trace: list[dict[str, Any]]
    """What was reported of the rounds so far."""
    counters: dict[str, int]
    """Traffic so far."""


class Checkpoint:
    """The checkpoint of a run; without a path it keeps nothing."""

    def __init__(self, path: Path | None, fingerprint: str = "") -> None:
        self.path = path
        self.fingerprint = fingerprint

    def save(self, snapshot: Snapshot) -> None:
        """Replace the checkpoint, whole or not at all."""
        if self.path is None:
            return
        about = {
            "fingerprint": self.fingerprint,
            "phase": snapshot.phase,
            "trace": snapshot.trace,
            "counters": snapshot.counters,
        }
        text = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)

        def write(partial: Path) -> None:
            with partial.open("wb") as file:
                np.savez(file, allow_pickle=False, about=text, **snapshot.arrays)

        write_whole(self.path, write)

    def load(self) -> Snapshot | None:
        """Read the checkpoint, if there is one of this very run."""
        if self.path is None or not self.path.exists():
            return None
        with np.load(self.path, allow_pickle=False) as content:
            about = json.loads(bytes(content["about"]))
            arrays = {name: content[name] for name in content.files if name != "about"}
        if about["fingerprint"] != self.fingerprint:
            raise SettingsError(
                f"{self.path}: this run was started with other data or settings: use the same ones, "
                "or start anew without --resume"
            )
        return Snapshot(about["phase"], arrays, about["trace"], about["counters"])

    def remove(self) -> None:
        """Forget the run: it has ended."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def fingerprint(clients: Clients, *settings: object) -> str:
    """Summarise data and settings, so that a change of either shows."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (clients.phi, clients.y, clients.offsets, clients.keys):
        digest.update(np.ascontiguousarray(part).view(np.uint8).data)
    digest.update(repr((clients.features, *settings)).encode())
    return digest.hexdigest()
