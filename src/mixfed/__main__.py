"""The command ``mixfed``, also as ``python -m mixfed``: a process of its own, which begins and ends quickly."""

from __future__ import annotations

import gc
import signal
import sys


class _Spared:
    """Arrow imports pandas, and numba cffi, to see whether what they are given is from there. Nothing in here is."""

    def find_spec(self, name: str, *rest: object) -> None:
        """Spare a command the time, which is as long as that of a small fit."""
        if name in ("pandas", "cffi"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)


def main() -> None:
    """Run the command line."""
    gc.set_threshold(100_000)  # imports make objects by the ten thousand, none of them to be collected
    sys.meta_path.insert(0, _Spared())
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeded:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # as long as there is nothing to tidy up, Ctrl-C just ends it
    from .cli import run

    if heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done
        gc.freeze()  # or else Python would look through all objects several times before it leaves


if __name__ == "__main__":
    main()
