"""A federation on one machine, to try it out: a table divided among sites that are processes of their own."""

import contextlib
import json
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...clients.store import ClientData
from ...core.errors import PoolError, SettingsError
from ...model.model import Model
from ...tables.write import write_parquet
from . import processes
from .kits import Kit, Role, provision

_MOST_SITES = 32
_STARTING = 60.0
"""Seconds that a party may take to start: many that start at once share the machine."""


def divide(table: ClientData, client: str, target: str, count: int, folder: Path) -> list[Kit]:
    """Divide the clients of a table among sites and make the kits, with a site's share of the rows in each."""
    if not 1 <= count <= _MOST_SITES:
        raise SettingsError(f"--sites {count}: give 1 to {_MOST_SITES}; each is two processes of some 400 MB together")
    processes.check_path(folder.absolute())
    if table.n_clients < count:
        raise SettingsError(f"--sites {count}: the table has no more than {table.n_clients} clients")
    features = table.features[: len(table.features) - table.intercept]
    kits = provision(folder, [f"site-{place + 1}" for place in range(count)], port=processes.free_port())
    for place, kit in enumerate(kit for kit in kits if kit.role is Role.SITE):
        own = table.subset(np.arange(place, table.n_clients, count))
        columns = {client: np.repeat(own.ids, own.rows), **dict(zip(features, own.phi.T, strict=True)), target: own.y}
        write_parquet(kit.path / "table.parquet", columns)
        settings: dict[str, object] = {"data": "table.parquet", "client": client, "target": target}
        # Pseudonyms differ from site to site and day to day: without them the fit can be compared with a local one.
        settings |= {"features": features, "min_clients": 1, "pseudonyms": False}
        lines = (f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in settings.items())
        kit.settings.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return kits


def largest_difference(one: Model, other: Model) -> float:
    """Compare two fits of a table by their coefficients and intercepts; infinite if kinds differ in number."""
    return float(np.abs(one.theta - other.theta).max()) if one.theta.shape == other.theta.shape else float("inf")


@contextlib.contextmanager
def running(kits: Sequence[Kit]) -> Iterator[Kit]:
    """Run a server and sites for as long as the block lasts, whatever ends it; gives the administrator's kit."""
    try:
        with _signals(lambda number, _: sys.exit(128 + number), signal.SIGTERM, signal.SIGHUP):
            server = next(kit for kit in kits if kit.role is Role.SERVER)
            _await([processes.start(server)])
            _await([processes.start(kit) for kit in kits if kit.role is Role.SITE])
            yield next(kit for kit in kits if kit.role is Role.ADMIN)
    finally:
        with _signals(signal.SIG_IGN, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # tidying up is not interrupted
            processes.stop([kit for kit in kits if kit.role is not Role.ADMIN])


def _await(started: Sequence[processes.PartyProcess]) -> None:
    for party in started:
        if not party.wait(_STARTING):
            raise PoolError(f"{party.kit.name} did not start within {_STARTING:g} s; its log is {party.kit.log}")


@contextlib.contextmanager
def _signals(handler: Any, *numbers: signal.Signals) -> Iterator[None]:
    """Handle signals so for as long as the block lasts; only the main thread can be told of them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
