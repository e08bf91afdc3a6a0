"""The kinds of clients, and what each deviates by: what a model finds of clients, and a prediction needs of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from ..core.arrays import Array, Floats, Ints
from ..tables.ids import common_form, in_form, joined

_LISTS = ("effects", "uncertainty")
"""What is kept of a client as lists of numbers, one for each kind."""
_NOTHING: Floats = np.empty((0, 0, 0))


@dataclass(frozen=True, eq=False)
class Assignment:
    """The kinds of clients."""

    ids: Array
    """(c,)"""
    rows: Ints
    """(c,)"""
    probabilities: Floats
    """(c, k)"""
    effects: Floats = field(default_factory=lambda: _NOTHING)
    """(c, k, r): what each client deviates by if it is of a kind, as c in the model's F c; r is 0 if nobody does."""
    uncertainty: Floats = field(default_factory=lambda: _NOTHING)
    """(c, k, r (r + 1) / 2): its covariance, the lower triangle row by row; (c, k, 0) if it was not kept."""

    def __post_init__(self) -> None:
        for name in _LISTS:
            if getattr(self, name) is _NOTHING:
                object.__setattr__(self, name, np.empty((*self.probabilities.shape, 0)))

    def __len__(self) -> int:
        return len(self.ids)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """As an array, an assignment is its kinds."""
        return np.asarray(self.cluster, dtype=dtype)

    @cached_property
    def cluster(self) -> Ints:
        """(c,): the most probable kind."""
        return np.asarray(np.argmax(self.probabilities, axis=1))

    @property
    def sizes(self) -> Ints:
        """(k,): how many clients were put into each kind."""
        return np.bincount(self.cluster, minlength=self.probabilities.shape[1])

    @cached_property
    def probability(self) -> Floats:
        """(c,): the probability of that kind."""
        best: Floats = self.probabilities.max(axis=1)
        return best

    def places(self, ids: Array) -> Ints:
        """Find clients (c,) in the assignment. -> (c,): their places, -1 for those that are not in it."""
        if len(self) == 0:
            return np.full(len(ids), -1)
        form = common_form(self.ids, ids)
        place = self._search(ids, form)
        lost = place < 0
        if form == "text" and lost.any():
            place[lost] = self._search(ids[lost], "bare text")
        return place

    def _search(self, ids: Array, form: str) -> Ints:
        """Find ids (c,) in one form."""
        if form not in self._sorted:
            mine = in_form(self.ids, form)
            order = np.argsort(mine, kind="stable")
            self._sorted[form] = mine[order], order
        (mine, order), wanted = self._sorted[form], in_form(ids, form)
        place = np.searchsorted(mine, wanted, side="right") - 1
        return np.where(mine[place] == wanted, order[place], -1)

    @cached_property
    def _sorted(self) -> dict[str, tuple[Array, Ints]]:
        """Ids (c,) in the forms in which they were looked for, ascending, and their places (c,)."""
        return {}

    def updated(self, newer: Assignment) -> Assignment:
        """Take over what a newer assignment says of its clients, and keep the rest."""
        kept = newer.places(self.ids) < 0
        known = (self.rows, self.probabilities, *_alike(self, newer))
        added = (newer.rows, newer.probabilities, *_alike(newer, self))
        parts = (np.concatenate([old[kept], new]) for old, new in zip(known, added, strict=True))
        return Assignment(joined(self.ids[kept], newer.ids), *parts)

    def columns(self) -> dict[str, Array]:
        """Give the columns of ``clients.parquet``."""
        columns = {
            "client": self.ids,
            "rows": self.rows,
            "cluster": self.cluster,
            "probability": self.probability,
        }
        for j, column in enumerate(self.probabilities.T):
            columns[f"probability_{j}"] = column
        for name in _LISTS:
            values = getattr(self, name)
            if values.shape[2]:
                parts = (pa.FixedSizeListArray.from_arrays(own.ravel(), own.shape[1]) for own in values.swapaxes(0, 1))
                columns |= {f"{name}_{j}": part for j, part in enumerate(parts)}
        return columns

    @classmethod
    def from_table(cls, table: Any, n_clusters: int) -> Assignment:
        """Read the table that `columns` makes."""
        kinds = range(n_clusters)
        kept = [name for name in _LISTS if f"{name}_0" in table.column_names]
        lists = (np.stack([_from_lists(table[f"{name}_{j}"]) for j in kinds], axis=1) for name in kept)
        shares = np.column_stack([table[f"probability_{j}"].to_numpy() for j in kinds])
        return cls(table["client"].to_numpy(), table["rows"].to_numpy(), shares, *lists)


def _from_lists(column: Any) -> Floats:
    """Read a column of lists, all of one length. -> (c, r)."""
    lists = column.combine_chunks()
    return np.asarray(lists.flatten().to_numpy(zero_copy_only=False).reshape(len(lists), -1))


def _alike(one: Assignment, other: Assignment) -> tuple[Floats, Floats]:
    """Give effects and uncertainty in the shape that another has: nobody deviates, and it is not known how much."""
    effects, uncertainty = one.effects, one.uncertainty
    if not effects.shape[2]:
        effects = np.zeros((*one.probabilities.shape, other.effects.shape[2]))
    if not uncertainty.shape[2]:
        uncertainty = np.full((*one.probabilities.shape, other.uncertainty.shape[2]), np.nan)
    return effects, uncertainty
