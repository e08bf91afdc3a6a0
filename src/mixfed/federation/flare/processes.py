"""A party on this machine: starting it in the background, waiting until it is there, stopping it and all that is its.

The engine's processes are known by their command line, which names the kit. So a party is found however it was started,
with the workers that it has started itself and those that it has left behind, and nothing else is ever stopped.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import PoolError, SettingsError
from .kits import ORGANISATION, Kit, Role, settle

if TYPE_CHECKING:
    from psutil import Process

_PROGRAMS = {
    Role.SERVER: ("nvflare.private.fed.app.server.server_train", "fed_server.json"),
    Role.SITE: ("nvflare.private.fed.app.client.client_train", "fed_client.json"),
}
_ENGINE = "nvflare.private.fed.app."
_REGISTERED = "Successfully registered client"
_ENVIRONMENT = {
    # No module is taken from the folder that a process runs in.
    "PYTHONSAFEPATH": "1",
    # The threads of BLAS wait busily: where parties share a machine, exchanges took ten times as long.
    **dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1"),
}
_COMPLAINTS = {
    "CERTIFICATE_VERIFY_FAILED": "the server there belongs to another federation",
    "Connect call failed": "nobody answers there",
    "getaddrinfo": "there is no such host",
    "Name or service not known": "there is no such host",
}
_STOPPING = 3.0
"""Seconds that a process may take to end by itself."""
_started: list[subprocess.Popen[bytes]] = []
"""Held on to, for Python complains of a process that is forgotten while it runs."""


class PartyProcess:
    """A server or a site that was started here."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        settle(kit)
        if kit.role is Role.SERVER:
            _require_free(kit)
        program, file = _PROGRAMS[kit.role]
        named = [f"uid={kit.name}"] if kit.role is Role.SITE else []
        command = [sys.executable, "-u", "-m", program, "-m", str(kit.path), "-s", file]
        command += ["--set", "secure_train=true", *named, f"org={ORGANISATION}", "config_folder=config"]
        with kit.log.open("ab") as log:
            self._heard = log.tell()
            self.process = subprocess.Popen(
                command,
                cwd=kit.path,
                env=_ENVIRONMENT | os.environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in this terminal is not for it
            )
        _started.append(self.process)

    def wait(self, seconds: float) -> bool:
        """Wait until the server listens or the site is registered; say whether it was within so many seconds."""
        end = time.monotonic() + seconds
        while not self._is_there():
            if self.process.poll() is not None:
                raise PoolError(f"{self.kit.name} has ended: {self.last_complaint()}; its log is {self.kit.log}")
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True

    def last_complaint(self) -> str:
        """Give the last error in the log since the start, in words where it is a common one."""
        lines = [line for line in self._said().splitlines() if "Error" in line or "ERROR" in line]
        if not lines:
            return "it does not say why"
        for mark, words in _COMPLAINTS.items():
            if mark in lines[-1]:
                return words
        return lines[-1].split(" - ")[-1].strip()

    def _is_there(self) -> bool:
        if self.kit.role is Role.SITE:
            return _REGISTERED in self._said()
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex(_own_end(self.kit)) == 0

    def _said(self) -> str:
        with self.kit.log.open("rb") as log:
            log.seek(self._heard)
            return log.read().decode(errors="replace")


def check_path(path: Path) -> None:
    """Refuse a place from which the engine cannot start: it makes one text of a command, and takes it apart again."""
    if shlex.split(str(path)) != [str(path)]:
        raise SettingsError(f"{path}: the engine needs a path without spaces and quotes: move the kit")


def start(kit: Kit) -> PartyProcess:
    """Start a party in the background, unless it is running already."""
    check_path(kit.path)
    running = processes(kit)
    if running:
        raise SettingsError(f"{kit.path}: it is running already, as process {running[0].pid}")
    return PartyProcess(kit)


def stop(kits: Iterable[Kit]) -> int:
    """Stop parties with all their processes and say how many these were."""
    import psutil

    kits, count = list(kits), 0
    # Sites first: a site that loses its server would only complain. Again, for what was just being started.
    kits.sort(key=lambda kit: kit.role is Role.SERVER)
    while found := [process for kit in kits for process in processes(kit)]:
        count += len(found)
        for end in (psutil.Process.terminate, psutil.Process.kill):
            for running in found:
                with contextlib.suppress(psutil.NoSuchProcess):
                    end(running)
            _, found = psutil.wait_procs(found, timeout=_STOPPING)
    for process in _started:
        process.poll()
    return count


def processes(kit: Kit) -> list[Process]:
    """Find the processes of a party: first the one that was started, then its workers."""
    import psutil

    found = [
        process
        for process in psutil.process_iter(["cmdline", "create_time", "status"])
        if str(kit.path) in (line := process.info["cmdline"] or [])
        and any(word.startswith(_ENGINE) for word in line)
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]
    return sorted(found, key=lambda process: process.info["create_time"])


def free_port() -> int:
    """Find a port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _require_free(kit: Kit) -> None:
    host, port = _own_end(kit)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            raise SettingsError(
                f"port {port} is taken by another program: stop it, or `init` with another --port"
            ) from None


def _own_end(kit: Kit) -> tuple[str, int]:
    """Give the address under which this machine reaches the server that runs on it."""
    host, _, port = kit.address.rpartition(":")
    return host if host.startswith("127.") else "127.0.0.1", int(port)
