"""The way to the sites: what an engine has to offer, and the one for sites in this process."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ..core.threads import one_blas_thread
from .site import Site


class Transport(Protocol):
    """A way to the sites: what an engine has to offer."""

    @property
    def names(self) -> Sequence[str]:
        """The sites that there are."""

    def send(self, messages: Mapping[str, bytes], timeout: float) -> Iterator[tuple[str, bytes | Exception]]:
        """Send each site its message, and give the sites' answers, or what went wrong, as they come in.

        A site that has not answered after ``timeout`` seconds is not waited for.
        """


class InProcess:
    """Sites in this process: for simulations and tests."""

    def __init__(self, sites: Mapping[str, Site]) -> None:
        self.sites = sites

    @property
    def names(self) -> Sequence[str]:
        """The sites that there are."""
        return list(self.sites)

    def send(self, messages: Mapping[str, bytes], timeout: float) -> Iterator[tuple[str, bytes | Exception]]:
        """Ask the sites one after the other: a large one has threads of its own."""
        with one_blas_thread():  # once for all of them
            for name, content in messages.items():
                yield name, self.sites[name].answer(content)
