"""The file of a model, ``model.json``: data, never code, and read with checks."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import DataError
from ..core.names import MODEL
from ..families.gaussian import GAUSSIAN
from ..families.registry import FAMILIES, family_named

if TYPE_CHECKING:
    from .model import Model

FORMAT = "mixfed/2"
FORMERLY = "mixfed/1"
"""Which is still read."""
_FOLLOWING = ("n_clusters", "personal", "deviation", "bic", "log_likelihood")
"""What a file says although it follows from the rest."""


def content_of(model: Model) -> dict[str, Any]:
    """Give the content of ``model.json``."""
    content: dict[str, Any] = {"format": FORMAT}
    for name in [*(item.name for item in dataclasses.fields(model)), *_FOLLOWING]:
        value = getattr(model, name)
        content[name] = value.tolist() if isinstance(value, np.ndarray) else value
    return content


def text_of(path: Path) -> tuple[str, str]:
    """Give the text of a ``model.json``, or of the one in a folder that ``mixfed fit`` wrote, and how to call it."""
    path = path / MODEL if path.is_dir() else path
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        reason = (error.strerror or "unreadable").lower()
        raise DataError(f"{path}: no model here ({reason}): give the folder that `mixfed fit` wrote") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a model file of mixfed") from error
    return text, str(path)


def read_model(kind: type[Model], text: str, source: str) -> Model:
    """Read the content of a ``model.json``."""
    try:
        content = json.loads(text)
        found = content.pop("format")
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise DataError(f"{source}: not a model file of mixfed, or damaged: fit again") from error
    if found not in (FORMAT, FORMERLY):
        raise DataError(
            f"{source}: the format is '{found}', this version of mixfed reads '{FORMAT}' and '{FORMERLY}': "
            "update mixfed, or fit again"
        )
    family = str(content.get("family", GAUSSIAN.name))
    if family not in FAMILIES:
        raise DataError(f"{source}: this version of mixfed does not know the family '{family}': update mixfed")
    known = {item.name for item in dataclasses.fields(kind)} | set(_FOLLOWING)
    if strange := sorted(content.keys() - known):
        raise DataError(f"{source}: this version of mixfed does not know {', '.join(strange)}: update mixfed")
    try:
        for name in _FOLLOWING:
            content.pop(name, None)
        if found == FORMERLY:
            for entry in content["details"].get("choice", []):
                entry["bic"] *= -1.0  # more was better
        for name in ("coef", "intercept", "weights", "noise", "coef_error", "intercept_error", "factor"):
            if content.setdefault(name, None) is not None:
                content[name] = np.array(content[name], dtype=np.float64)
        for name in ("features", "warnings"):
            content[name] = tuple(content[name])
        model = kind(**content)
        _check(model)
        return model
    except (TypeError, ValueError, KeyError) as error:
        raise DataError(f"{source}: the model file is damaged ({error}): fit again") from error


def _check(model: Model) -> None:
    """Refuse parts that do not belong together: compiled code would not look twice."""
    k, dim = model.coef.shape
    shapes: dict[str, tuple[int, ...]] = {"coef": (k, len(model.features)), "coef_error": (k, dim)}
    shapes |= dict.fromkeys(("intercept", "weights", "noise", "intercept_error"), (k,))
    for name, shape in shapes.items():
        part = getattr(model, name)
        if part is not None and (part.shape != shape or not np.isfinite(part).all()):
            raise ValueError(f"{name} is not {shape} finite numbers")
    family = family_named(model.family)
    if (model.noise is None) == family.has_dispersion or model.loss != family.loss:
        raise ValueError(f"noise or loss are not those of the family {family.name}")
    if (model.scale < 0).any() or (model.weights < 0).any():
        raise ValueError("noise or weights are below 0")
    if model.factor is not None:
        wide = dim + model.has_intercept
        if model.factor.ndim != 3 or model.factor.shape[:2] != (k, wide) or not np.isfinite(model.factor).all():
            raise ValueError(f"factor is not {(k, wide, 'r')} finite numbers")
        if (model.scale <= 0).any() or model.loss != "squared":
            raise ValueError("personal models need noise and squared loss")
    if k < 1 or type(model.has_intercept) is not bool:
        raise ValueError("no kinds, or has_intercept is neither true nor false")
