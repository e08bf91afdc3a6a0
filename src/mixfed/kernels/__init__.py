"""Sums over blocks of clients: arrays in, arrays out. No kernel knows a query or a pool.

For whoever wants to see the mathematics of a sum: `plain` has every kernel as NumPy says it. `compiled` has twins of
the few that large fits gain by; the size of the table alone says which are taken, so that the same data and settings
give the same bytes.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from types import ModuleType

from ..core.errors import SettingsError

MOST_PLAIN = 500_000
"""Numbers in the rows of a table (rows times features) up to which a first fit is as quick without compiled code, even
if that is on disk: see docs/performance.md."""
_NAMES = ("plain", "compiled")


def chosen(numbers: int) -> ModuleType:
    """Give the kernels for a table of so many numbers."""
    return named(name_for(numbers))


def name_for(numbers: int) -> str:
    """Name the kernels for a table of so many numbers, or those that MIXFED_KERNELS asks for."""
    wanted = os.environ.get("MIXFED_KERNELS", "")
    if wanted not in ("", *_NAMES):
        raise SettingsError(f"MIXFED_KERNELS = '{wanted}' must be plain or compiled")
    return wanted or _NAMES[numbers > MOST_PLAIN]


def told_of_compiling(numbers: int, tell: Callable[[], None]) -> AbstractContextManager[None]:
    """Tell somebody, once, if anything must be compiled for a table of so many numbers: that takes seconds."""
    if name_for(numbers) == "plain":
        return nullcontext()
    from ..core.compile import telling

    return telling(tell)


def named(name: str) -> ModuleType:
    """Give the kernels of a name, which alone are imported."""
    return import_module(f".{name}", __name__)
