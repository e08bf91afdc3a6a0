"""mixfed: clustered federated regression."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .clients.dask import DaskPool
    from .clients.local import LocalPool
    from .clients.packed import Clients
    from .clients.packing import pack
    from .clients.store import Store
    from .core.errors import DataError, MixfedError, PoolError, SettingsError
    from .estimator import MixedRegressor
    from .evaluation.metrics import bottleneck_distance, label_agreement
    from .evaluation.simulation import simulate
    from .model.assignment import Assignment
    from .model.fit import Fit
    from .model.model import Model
    from .recipes.auto import fit_auto
    from .recipes.paper import fit_paper
    from .recipes.settings import AutoSettings, PaperSettings

__version__ = "0.2.0"

# Loaded when first used, so that `import mixfed` and `mixfed --help` stay quick.
_HOMES = {
    "Assignment": "model.assignment",
    "AutoSettings": "recipes.settings",
    "Clients": "clients.packed",
    "DaskPool": "clients.dask",
    "DataError": "core.errors",
    "Fit": "model.fit",
    "LocalPool": "clients.local",
    "MixedRegressor": "estimator",
    "MixfedError": "core.errors",
    "Model": "model.model",
    "PaperSettings": "recipes.settings",
    "PoolError": "core.errors",
    "SettingsError": "core.errors",
    "Store": "clients.store",
    "bottleneck_distance": "evaluation.metrics",
    "fit_auto": "recipes.auto",
    "fit_paper": "recipes.paper",
    "label_agreement": "evaluation.metrics",
    "pack": "clients.packing",
    "simulate": "evaluation.simulation",
}

__all__ = [
    "Assignment",
    "AutoSettings",
    "Clients",
    "DaskPool",
    "DataError",
    "Fit",
    "LocalPool",
    "MixedRegressor",
    "MixfedError",
    "Model",
    "PaperSettings",
    "PoolError",
    "SettingsError",
    "Store",
    "__version__",
    "bottleneck_distance",
    "fit_auto",
    "fit_paper",
    "label_agreement",
    "pack",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mixfed' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
