"""Rows with owners: numbers that are checked, whatever they were made of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.arrays import Array, Floats, Ints
from ..core.errors import DataError
from ..core.names import INTERCEPT
from .ids import find_clients
from .missing import check_finite


@dataclass(frozen=True, eq=False)
class Rows:
    """Features and owners of rows, with or without targets, in the caller's order."""

    phi: Array
    """(n_rows, d), float32 or float64, without the intercept."""
    y: Floats | None
    """(n_rows,)"""
    ids: Array
    """(n_clients,), sorted."""
    owner: Ints
    """(n_rows,): the place of the row's client in ``ids``."""
    features: tuple[str, ...]
    """The names of the columns of phi, and the intercept, if any, as the last."""
    offset: Floats | None = None
    """(n_rows,): what is added to every linear predictor."""
    weight: Floats | None = None
    """(n_rows,): how often each row counts, above 0."""


def rows_from_arrays(
    X: Any,
    y: Any = None,
    groups: Any = None,
    *,
    intercept: bool = False,
    features: Sequence[str] | None = None,
    offset: Any = None,
    weight: Any = None,
) -> Rows:
    """Check arrays and find the clients in them. X (n, d), the others (n,) or None; rows of weight 0 are left out."""
    if weight is not None:
        weight = _column(weight, "the weights", len(X))
        if (weight < 0).any():
            raise DataError(f"the weights must not be negative: that of row {int((weight < 0).argmax())} is")
        kept = np.flatnonzero(weight > 0)
        if len(kept) == 0:
            raise DataError("all sample weights are zero: no row is left")
        if len(kept) < len(weight):
            parts = (None if part is None else np.asarray(part)[kept] for part in (X, y, groups, offset, weight))
            X, y, groups, offset, weight = parts
    if offset is not None:
        offset = _column(offset, "the offset", len(X))
    phi = _as_float(X, "X")
    if phi.ndim != 2:
        raise DataError(f"X must have two dimensions (rows, features), it has shape {phi.shape}")
    n_rows, dim = phi.shape
    names = tuple(features) if features is not None else tuple(f"x_{j}" for j in range(dim))
    if len(names) != dim:
        raise DataError(f"X has {dim} columns but {len(names)} feature names were given")
    if n_rows == 0:
        raise DataError("X has no rows")
    check_finite(phi, names, "X")
    target = None
    if y is not None:
        target = np.ascontiguousarray(_as_float(y, "y"), dtype=np.float64)
        if target.shape != (n_rows,):
            raise DataError(f"y must have one value per row of X, shape ({n_rows},), it has {target.shape}")
        check_finite(target[:, None], ("y",), "y")
    if groups is None:
        ids: Array = np.arange(n_rows)
        owner = np.arange(n_rows)
    else:
        shape = groups.shape if hasattr(groups, "shape") else (len(groups),)
        if shape != (n_rows,):
            raise DataError(f"groups must have one id per row of X, shape ({n_rows},), it has {shape}")
        ids, owner = find_clients(groups, "groups")
    return Rows(phi, target, ids, owner, with_intercept(names, intercept), offset, weight)


def _column(values: Any, name: str, n_rows: int) -> Floats:
    """Check one finite number per row. -> (n,)."""
    found: Floats = np.ascontiguousarray(_as_float(values, name), dtype=np.float64)
    if found.shape != (n_rows,):
        raise DataError(f"{name} must have one value per row of X, shape ({n_rows},), it has {found.shape}")
    check_finite(found[:, None], (name,), name)
    return found


def with_intercept(features: Sequence[str], intercept: bool) -> tuple[str, ...]:
    """Name the intercept after the other features, if there is to be one; no other may have its name."""
    if INTERCEPT in features:
        raise DataError(f"column '{INTERCEPT}' has the name that is kept for the constant term: rename it")
    return (*features, INTERCEPT) if intercept else tuple(features)


def _as_float(values: Any, name: str) -> Array:
    try:
        array = np.asarray(values)
        if array.dtype not in (np.float32, np.float64):
            array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must hold numbers: {error}") from error
    return np.ascontiguousarray(array)
