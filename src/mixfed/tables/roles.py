"""Which column is the client, which the target, which are features, and which clients there are: the first pass.

The one set of rules for tables of all sorts. Values of numbers and dates are not looked at here, but text may hold
numbers, which only the whole column shows.
"""

import dataclasses
import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.arrays import Array, Floats, Ints
from ..core.errors import DataError, SettingsError
from .column_types import TextColumn, is_number, is_text
from .ids import encode_clients
from .rows import with_intercept
from .sources import Source, no_rows

Watch: TypeAlias = Callable[[str, int, int | None], None]
"""Told the name of the pass, the rows that it has done, and of how many if that is known."""
_MERGE = 100_000
"""Ids of batches are put together when there are this many more than clients known before."""
_MOST_NAMES = 20
"""Names of columns that are told at once."""
_ROW_NUMBERS = re.compile(r"|Unnamed: \d+|__index_level_\d+__")
"""What pandas calls a column of row numbers in a file."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Which columns are taken, and which clients own how many rows."""

    client: str
    target: str | None
    features: tuple[str, ...]
    """Names of the d features, without the intercept."""
    precision: type[np.floating[Any]]
    """Single where all features have it."""
    ids: pa.Array
    """(n_clients,), sorted."""
    counts: Ints
    """(n_clients,): rows of each."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.counts.sum())


@dataclass(frozen=True)
class Extras:
    """Columns that say more of a row than its features: at most one of the first two, and its weight."""

    offset: str | None = None
    """What is added to every linear predictor."""
    exposure: str | None = None
    """That of which the logarithm is added."""
    weight: str | None = None

    def __post_init__(self) -> None:
        """Refuse two columns for one thing."""
        if self.offset is not None and self.exposure is not None:
            raise SettingsError("give an offset or an exposure, whose logarithm is one, not both")

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in the order in which they are read."""
        return tuple(name for name in (self.offset or self.exposure, self.weight) if name is not None)

    def planned(self, plan: Plan, source: str) -> Plan:
        """Put these columns behind the features."""
        for name in self.names:
            if name not in plan.features:
                raise DataError(f"{source}: column '{name}' must hold numbers, to be an offset, exposure or weight")
        features = tuple(name for name in plan.features if name not in self.names)
        if not features:
            raise DataError(f"{source}: no column is left to be a feature")
        return dataclasses.replace(plan, features=(*features, *self.names))

    def taken_apart(self, numbers: Array, source: str) -> tuple[Array, Floats | None, Floats | None]:
        """Give features (n, d), offset and weight (n,) of the columns that were read."""
        dim, offset, weight = numbers.shape[1] - len(self.names), None, None
        columns = {name: numbers[:, dim + place].astype(np.float64) for place, name in enumerate(self.names)}
        if self.exposure is not None:
            _check_above_0(columns[self.exposure], self.exposure, "an exposure", source)
            offset = np.log(columns[self.exposure])
        if self.offset is not None:
            offset = columns[self.offset]
        if self.weight is not None:
            weight = columns[self.weight]
            _check_above_0(weight, self.weight, "a weight", source)
        return numbers[:, :dim], offset, weight


NO_EXTRAS = Extras()


def _check_above_0(values: Floats, name: str, what: str, source: str) -> None:
    if (values <= 0).any():
        row = int((values <= 0).argmax())
        raise DataError(f"{source}: column '{name}' must be above 0, to be {what}: in some row it is {values[row]:g}")


def find_clients_and_columns(
    source: Source, client: str, target: str | None, features: Sequence[str] | None, watch: Watch | None = None
) -> Plan:
    """Read the ids, and choose the features if none are named: every numeric column but the client and the target."""
    schema = source.schema
    check_columns(schema.names, client, target, features, source.name)
    others, wanted = may_be_features(schema.names, client, target), [] if target is None else [target]
    looked_at = [*(others if features is None else features), *wanted]
    texts = {
        column: TextColumn(column, source.name, source.decimal, "target" if column == target else "feature")
        for column in looked_at
        if is_text(schema.field(column).type)
    }
    tally, done = _Tally(f"{source.name}: column '{client}'"), 0
    for batch in source.batches(list(dict.fromkeys([client, *texts]))):
        for column, text in texts.items():
            text.add(batch[column])
        tally.add(batch[client], done)
        done += batch.num_rows
        if watch is not None:
            watch("Finding clients", done, source.n_rows)
    if done == 0:
        raise no_rows(source.name)
    if features is None:
        numeric = {column for column in others if is_number(schema.field(column).type)} - source.blank
        numeric |= {column for column, text in texts.items() if column != target and text.are_numbers()}
        features = [column for column in others if column in numeric]
    check_features(features, client, target, source.name)
    with_intercept(features, True)  # no feature may have its name
    for column in [*features, *wanted]:
        if column in texts:
            texts[column].check()
    single = all(pa.types.is_float32(schema.field(name).type) for name in features)
    ids, counts = tally.finish(may_be_numbers=source.text_ids)
    return Plan(client, target, tuple(features), np.float32 if single else np.float64, ids, counts)


class _Tally:
    """Clients and their rows, counted batch by batch."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.ids: list[pa.Array] = []
        self.counts: list[Ints] = []
        self.limit = _MERGE

    def add(self, column: pa.ChunkedArray, first: int) -> None:
        """Count the rows of a batch."""
        ids, owner = encode_clients(column, self.source, first)
        self.ids.append(ids)
        self.counts.append(np.bincount(owner, minlength=len(ids)))
        if sum(map(len, self.ids)) > self.limit:
            self._merge()

    def finish(self, *, may_be_numbers: bool) -> tuple[pa.Array, Ints]:
        """Give the ids (c,), sorted, as numbers if they may be and are, and how many rows each has (c,)."""
        self._merge()
        if may_be_numbers:
            self.ids = [_whole_numbers(self.ids[0])]
            self._merge()  # other than as text, 10 comes after 9
        return self.ids[0], self.counts[0]

    def _merge(self) -> None:
        ids, owner = encode_clients(pa.chunked_array(self.ids), self.source)
        counts = np.zeros(len(ids), dtype=np.int64)
        np.add.at(counts, owner, np.concatenate(self.counts))
        self.ids, self.counts, self.limit = [ids], [counts], 2 * len(ids) + _MERGE


def _whole_numbers(ids: pa.Array) -> pa.Array:
    """Make ids that are all written as whole numbers numbers, as they are in other files; leave others as they are."""
    try:
        numbers = pc.cast(ids, pa.int64())
    except pa.ArrowInvalid:
        return ids
    return numbers if pc.all(pc.equal(pc.cast(numbers, pa.string()), ids)).as_py() else ids


def may_be_features(names: Sequence[str], client: str, target: str | None) -> list[str]:
    """Give the columns that are features if they hold numbers; those that pandas made of row numbers are not."""
    return [name for name in names if name not in (client, target) and not _ROW_NUMBERS.fullmatch(name)]


def check_columns(
    names: Sequence[str], client: str, target: str | None, features: Sequence[str] | None, source: str
) -> None:
    """Refuse columns that are asked for and are not there."""
    for name in (client, *([target] if target is not None else []), *(features or [])):
        if name not in names:
            raise DataError(f"{source}: no column '{name}'; {_near(name, names)}{told_names(names)}")
    if target == client:
        raise DataError(f"{source}: column '{client}' cannot be both the client and the target")


def _near(name: str, names: Sequence[str]) -> str:
    """Guess which column was meant."""
    by_letters = {other.strip().lower(): other for other in reversed(names)}
    close = difflib.get_close_matches(name.strip().lower(), list(by_letters), n=1)
    return f"did you mean '{by_letters[close[0]]}'? " if close else ""


def told_names(names: Sequence[str]) -> str:
    """Tell the columns there are; a single one is most likely several that are not parted."""
    if len(names) == 1:
        parted = "commas, semicolons, tabs or pipes"
        return f"the only column is '{names[0]}': are the columns parted by something else than {parted}?"
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"the columns are {', '.join(names[:_MOST_NAMES])}{more}"


def check_features(features: Sequence[str], client: str, target: str | None, source: str) -> None:
    """Refuse features that are not features."""
    clash = [name for name in features if name in (client, target)]
    if clash:
        raise DataError(f"{source}: column '{clash[0]}' cannot be a feature too")
    twice = [name for name in features if list(features).count(name) > 1]
    if twice:
        raise DataError(f"{source}: column '{twice[0]}' is named twice among the features")
    if not features:
        raise DataError(f"{source}: no numeric column is left to be a feature: add one, or name them by --features")
