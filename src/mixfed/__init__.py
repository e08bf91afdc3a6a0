"""mixfed: clustered federated regression."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .data import Clients
    from .errors import DataError, MixfedError, SettingsError
    from .fit import Fit, fit_paper
    from .metrics import bottleneck_distance, label_agreement
    from .model import Model
    from .pool import LocalPool
    from .settings import PaperSettings
    from .simulation import simulate

__version__ = "0.1.0"

# Loaded when first used, so that `import mixfed` and `mixfed --help` stay quick.
_HOMES = {
    "Clients": "data",
    "DataError": "errors",
    "Fit": "fit",
    "LocalPool": "pool",
    "MixfedError": "errors",
    "Model": "model",
    "PaperSettings": "settings",
    "SettingsError": "errors",
    "bottleneck_distance": "metrics",
    "fit_paper": "fit",
    "label_agreement": "metrics",
    "simulate": "simulation",
}

__all__ = [
    "Clients",
    "DataError",
    "Fit",
    "LocalPool",
    "MixfedError",
    "Model",
    "PaperSettings",
    "SettingsError",
    "__version__",
    "bottleneck_distance",
    "fit_paper",
    "label_agreement",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mixfed' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
