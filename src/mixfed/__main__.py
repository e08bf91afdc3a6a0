"""The command ``mixfed``, also as ``python -m mixfed``: a process of its own, which begins and ends quickly."""

import gc
import signal


def main() -> None:
    """Run the command line."""
    gc.set_threshold(100_000)  # imports make objects by the ten thousand, none of them to be collected
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
