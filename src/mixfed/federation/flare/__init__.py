"""The federation on NVIDIA FLARE: for the engineer who runs it, and for nobody else.

`ends` are the classes that FLARE runs at the server and at sites; `kits` are what each party installs, `jobs` what the
administrator sends, `admin` how; `local` and `processes` run a whole federation on one machine. Kits that were issued
and jobs name `Conductor` and `Answerer` by this package, which imports NVIDIA FLARE only when they are asked for.
"""

from typing import Any

__all__ = ["Answerer", "Conductor"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from . import ends

    return getattr(ends, name)
