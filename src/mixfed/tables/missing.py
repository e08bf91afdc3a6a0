"""Values that are missing or infinite: found, counted, and refused by column and row."""

from collections.abc import Sequence

import numpy as np

from ..core.arrays import Array
from ..core.errors import ColumnError


def check_finite(columns: Array, names: Sequence[str], source: str) -> None:
    """Refuse missing and infinite values; columns (n, d)."""
    for j in not_finite(columns):
        gaps = Gaps(names[j], source)
        gaps.add(columns[:, j])
        gaps.check("feature")


def not_finite(columns: Array) -> list[int]:
    """Find the columns of an array (n, d) that have missing or infinite values."""
    # The sum of a column shows a NaN or infinity without a mask as large as the data.
    with np.errstate(invalid="ignore", over="ignore"):
        suspicious = np.flatnonzero(~np.isfinite(columns.sum(axis=0, dtype=np.float64)))
    return [j for j in suspicious.tolist() if not np.isfinite(columns[:, j]).all()]


class Gaps:
    """The values of a column that are missing or infinite, batch by batch."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.source = name, source
        self.rows = self.missing = self.infinite = 0
        self.first: int | None = None

    def add(self, values: Array) -> None:
        """Look at the next rows (n,)."""
        finite = np.isfinite(values)
        if not finite.all():
            if self.first is None:
                place = int(np.argmin(finite))
                self.first, self.first_is_missing = self.rows + place, bool(np.isnan(values[place]))
            self.missing += int(np.isnan(values).sum())
            self.infinite += int(np.isinf(values).sum())
        self.rows += len(values)

    def check(self, role: str) -> None:
        """Refuse a column that has any."""
        if self.first is None:
            return
        what, count = ("missing", self.missing) if self.first_is_missing else ("infinite", self.infinite)
        if 1 < self.missing == self.rows:
            raise ColumnError(empty_column(self.name, self.source, role), self.name)
        leave = ", or leave the column out of the features" if role == "feature" else ""
        if count == 1:
            where, way = at_row(self.first), "fill it in or drop the row"
        else:
            where = f"{at_row(self.first)} and {count - 1:,} more of the {self.rows:,} rows"
            way = "fill them in or drop the rows"
        article = "a" if what == "missing" else "an"
        raise ColumnError(
            f"{self.source}: column '{self.name}' has {article} {what} value in {where}: {way}{leave}", self.name
        )


def empty_column(name: str, source: str, role: str) -> str:
    """Say that a column has no values, and what to do about it."""
    way = "leave it out of the features" if role == "feature" else "choose another target"
    return f"{source}: column '{name}' is empty: {way}"


def at_row(index: int) -> str:
    """Name a row both as people count and as programs do."""
    return f"row {index + 1} (index {index})"
