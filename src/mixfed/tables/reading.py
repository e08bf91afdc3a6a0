"""The rows of a table as numbers with owners: the second pass, batch by batch."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from ..core.arrays import Array, Floats, Ints
from ..core.errors import ColumnError, DataError
from .column_types import TextColumn, as_floats, decoded, is_text, numbers, read_text
from .ids import find_clients, plain
from .missing import Gaps
from .roles import NO_EXTRAS, Extras, Plan, Watch, find_clients_and_columns
from .rows import Rows, with_intercept
from .sources import Source, read_by

Put: TypeAlias = Callable[[int, Ints, Array, Floats], None]
"""Takes rows from a first one on: owner (n,), each row's place among the plan's clients, phi (n, d), y (n,). If the
first is 0, all rows come, or come once more."""


def planned(
    path: Path, client: str, target: str | None, features: Sequence[str] | None, watch: Watch | None = None
) -> tuple[Source, Plan]:
    """Open a file and find its clients and columns."""
    return read_by(
        lambda source: (source, find_clients_and_columns(source, client, target, features, watch)), path, client
    )


def read_rows(source: Source, plan: Plan, *, intercept: bool, extras: Extras = NO_EXTRAS) -> Rows:
    """Read all rows in their order."""
    plan = extras.planned(plan, source.name)
    phi, y = np.empty((plan.n_rows, len(plan.features)), plan.precision), np.empty(plan.n_rows)
    owners = np.empty(plan.n_rows, np.int64)

    def put(first: int, owner: Ints, some: Array, targets: Floats) -> None:
        part = slice(first, first + len(owner))
        owners[part], phi[part], y[part] = owner, some, targets

    write_rows(source, plan, put)
    ids = plan.ids.to_numpy(zero_copy_only=False)
    phi, *more = extras.taken_apart(phi, source.name)
    names = with_intercept(plan.features[: phi.shape[1]], intercept)
    return Rows(phi, None if plan.target is None else y, ids, owners, names, *more)


def write_rows(source: Source, plan: Plan, put: Put, watch: Watch | None = None) -> None:
    """Hand over the rows of a table, batch by batch."""
    try:
        _write_rows(source, plan, put, watch)
    except ColumnError as error:
        _find_fault(source, error.column, plan)
        raise
    except DataError as error:
        # Text where numbers were before: as text it is either read or refused by row.
        again = source.as_text() if isinstance(error.__cause__, pa.ArrowInvalid) else None
        if again is None:
            raise
        for column in _columns(plan):
            _find_fault(again, column, plan)
        _write_rows(again, plan, put, watch)


def _columns(plan: Plan) -> list[str]:
    return [*plan.features, *([] if plan.target is None else [plan.target])]


def _find_fault(source: Source, column: str, plan: Plan) -> None:
    """Refuse a column for all that is wrong with it, if there is any, and not only for what a batch shows."""
    role = "target" if column == plan.target else "feature"
    text, gaps = TextColumn(column, source.name, source.decimal, role), Gaps(column, source.name)
    for batch in source.batches([column]):
        values = decoded(batch[column])
        if is_text(values.type):
            text.add(values)
            gaps.add(read_text(values, source.decimal)[0])
        else:
            gaps.add(as_floats(values))
    if text.rows:
        text.check()
    gaps.check(role)


def _write_rows(source: Source, plan: Plan, put: Put, watch: Watch | None) -> None:
    ids, left, done = plan.ids.to_numpy(zero_copy_only=False), plan.counts.copy(), 0
    for batch in source.batches([plan.client, *_columns(plan)]):
        phi = numbers(batch, plan.features, plan.precision, source.name, source.decimal, "feature")
        y = np.zeros(batch.num_rows)
        if plan.target is not None:
            y = numbers(batch, (plan.target,), np.float64, source.name, source.decimal, "target")[:, 0]
        here, owner = _places(batch, plan, ids, source.name)
        left[here] -= np.bincount(owner, minlength=len(here))
        if np.any(left[here] < 0):
            raise _changed(source.name)
        put(done, here[owner], phi, y)
        done += batch.num_rows
        if watch is not None:
            watch("Packing rows", done, plan.n_rows)
    if done != plan.n_rows:
        raise _changed(source.name)


def _places(batch: pa.Table, plan: Plan, ids: Array, name: str) -> tuple[Ints, Ints]:
    """Find a batch's clients among all (c,), and each row's (n,) place among those of the batch."""
    source = f"{name}: column '{plan.client}'"
    column = plain(batch[plan.client], source)
    try:
        column = column.cast(plan.ids.type)  # the ids of a CSV file come as text
    except pa.ArrowException as error:
        raise _changed(name) from error
    there, owner = find_clients(column, source)
    places = np.minimum(np.searchsorted(ids, there), len(ids) - 1)
    if np.any(ids[places] != there):
        raise _changed(name)
    return places, owner


def _changed(name: str) -> DataError:
    return DataError(f"{name}: it changed while it was read: try again")
