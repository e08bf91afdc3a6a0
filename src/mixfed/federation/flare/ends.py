"""NVIDIA FLARE's ends of a federation: the one file that knows its Collab interface.

A job names two classes of this file and brings no code with it: `Answerer` runs at every site, `Conductor` at the
server. Each party runs the mixfed that it has installed itself, and a site's own policy lets nothing else run there.
"""

import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Lock
from typing import Any

from nvflare.collab import collab

from ...core.errors import MixfedError, PoolError
from ...core.files import write_json
from ...model.fit import Progress
from ..conduct import conduct, failed
from ..site import Site
from ..site_file import open_site
from .jobs import FAILURE, PROGRESS, RESULT, RESULTS, RUNS, read_job
from .kits import SETTINGS

_log = logging.getLogger(__name__)


class Answerer:
    """A site's end: answers the server, and nobody else, from the site's own table."""

    def __init__(self) -> None:
        self._site: Site | None = None
        self._opening = Lock()

    @collab.publish  # type: ignore[untyped-decorator]
    def answer(self, query: bytes) -> bytes:
        """Answer one message of the server."""
        # Collab lets the sites of a job call each other, too.
        if collab.caller != "server":
            raise PermissionError("only the server is answered")
        return self._opened().answer(query)

    def _opened(self) -> Site:
        """Open the site's table with the first question: once for as long as the job lasts."""
        with self._opening:
            if self._site is None:
                try:
                    self._site = open_site(Path(collab.workspace.get_root_dir()) / SETTINGS)
                except Exception:
                    # What is wrong with a table may quote from it: that stays here.
                    _log.exception("the table of this site cannot be used")
                    raise RuntimeError("the site cannot use its table; its log says why") from None
        return self._site


class CollabTransport:
    """Messages to the sites of a federation, as far as they are in the running job."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self._context = collab.context
        self._sites = {site.name: site for site in collab.clients}
        self._threads = ThreadPoolExecutor(len(self._sites), thread_name_prefix="site")

    def send(self, messages: Mapping[str, bytes], timeout: float) -> Iterator[tuple[str, bytes | Exception]]:
        """Ask sites, each its own question, side by side; give what comes of it as it comes."""
        yield from ((name, ConnectionError("it is not connected")) for name in messages if name not in self._sites)
        # A group call of Collab is no more than this: it, too, encodes and sends once for each site.
        calls = {
            self._threads.submit(self._sites[name](timeout=timeout).answer, content): name
            for name, content in messages.items()
            if name in self._sites
        }
        for call in as_completed(calls):
            error = call.exception()
            if error is not None and self._context.is_aborted():
                # No site is to blame: a run that goes on later must find all of them as they were.
                raise PoolError("the engine has stopped the job: a worker of a site has ended, or somebody stopped it")
            if error is None:
                yield calls[call], call.result()
            elif "timed out" not in str(error):  # one that only took too long has not answered
                reason = str(getattr(error, "cause", error))
                yield calls[call], ConnectionError(reason.removeprefix("RuntimeError: "))


class Conductor:
    """The server's end: the run, kept in the server's own kit so that another job can go on with it."""

    @collab.main  # type: ignore[untyped-decorator]
    def main(self) -> None:
        """Fit across the sites of this job."""
        workspace, context = collab.workspace, collab.fl_ctx
        identity = context.get_job_id()
        run = read_job(Path(workspace.get_app_config_dir(identity)))
        folder = Path(workspace.get_root_dir()) / RUNS / run.name
        folder.mkdir(parents=True, exist_ok=True)
        rounds: list[tuple[str, int, int, str]] = []

        def watch(event: Progress) -> None:
            rounds.append((event.phase, event.round, event.rounds, event.info.note))

        def report(topic: str, data: dict[str, int] | None, context: object) -> dict[str, Any]:
            """Give the administrator, who asks how far the run is, the rounds after those that were ``seen``."""
            return {"rounds": rounds[(data or {}).get("seen", 0) :]}

        context.get_engine().register_app_command(PROGRESS, report)
        # What the administrator can download is the folder of the job.
        result = Path(workspace.get_run_dir(identity)) / RESULT
        result.mkdir()
        try:
            conduct(CollabTransport(run.sites), run.job, folder, watch)
        except Exception as error:
            reason = str(error) if isinstance(error, MixfedError) else failed(error)
            failure = {"reason": reason, "passing": isinstance(error, PoolError)}
            write_json(result / FAILURE, failure)
            raise
        for name in RESULTS:
            shutil.copy(folder / name, result)
