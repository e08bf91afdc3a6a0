"""mixfed: clustered federated regression."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .clients.dask import DaskPool as DaskPool
    from .clients.local import LocalPool as LocalPool
    from .clients.packed import Clients as Clients
    from .clients.packing import pack as pack
    from .clients.store import Store as Store
    from .core.errors import (
        DataError as DataError,
        MixfedError as MixfedError,
        PoolError as PoolError,
        SettingsError as SettingsError,
    )
    from .estimator import MixedClassifier as MixedClassifier, MixedRegressor as MixedRegressor
    from .evaluation.metrics import bottleneck_distance as bottleneck_distance, label_agreement as label_agreement
    from .evaluation.simulation import simulate as simulate
    from .model.assignment import Assignment as Assignment
    from .model.fit import Fit as Fit
    from .model.model import Model as Model
    from .recipes.auto import fit_auto as fit_auto
    from .recipes.paper import fit_paper as fit_paper
    from .recipes.settings import AutoSettings as AutoSettings, PaperSettings as PaperSettings

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
    "MixedClassifier": "estimator",
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

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mixfed' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
