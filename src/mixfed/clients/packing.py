"""Packing: a table's rows put in the order of their clients, in two passes over batches.

The first pass reads the ids alone and finds every client's place, the second puts each row where it belongs, in memory
(`Clients.from_file`) or on disk (`pack`). What is held besides grows with the number of clients, not of rows.
"""

import contextlib
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..core import draws
from ..core.arrays import Array, Floats, Ints
from ..core.errors import DataError
from ..core.files import whole_folder, write_json
from ..tables.reading import planned, write_rows
from ..tables.roles import Plan, Watch
from ..tables.write import write_parquet
from .packed import content_digest, offsets_of, rows_by_client
from .row_files import RowWriter
from .store import FILES, FORMAT, Store, is_store


def pack(
    source: str | Path,
    out: str | Path,
    client: str,
    target: str,
    features: Sequence[str] | None = None,
    *,
    watch: Watch | None = None,
) -> Store:
    """Pack a file in a folder, which is there when it is whole and not before.

    A packed folder that is there already is replaced; anything else there is an error.
    """
    _check_free(Path(out))
    table, plan = planned(Path(source), client, target, features, watch)
    offsets = offsets_of(plan.counts)
    with whole_folder(Path(out), FILES) as folder:
        with contextlib.closing(_Disk(folder, plan)) as disk:
            write_rows(table, plan, rows_by_client(offsets, disk.write), watch)
            digests = disk.phi.finish(), disk.y.finish()
        _write_rest(folder, plan, offsets, *digests)
    return Store.open(out)


class _Disk:
    """Rows in two files."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        shape = (plan.n_rows, len(plan.features))
        with contextlib.ExitStack() as opened:
            self.phi = opened.enter_context(contextlib.closing(RowWriter(folder / "phi.npy", shape, plan.precision)))
            self.y = opened.enter_context(contextlib.closing(RowWriter(folder / "y.npy", shape[:1], np.float64)))
            self.close = opened.pop_all().close

    def write(self, places: Ints, phi: Array, y: Floats) -> None:
        """Write each run of neighbours at once."""
        cuts = np.flatnonzero(np.diff(places) != 1) + 1
        for begin, end in itertools.pairwise([0, *cuts.tolist(), len(places)]):
            self.phi.write(int(places[begin]), phi[begin:end])
            self.y.write(int(places[begin]), y[begin:end])


def _write_rest(folder: Path, plan: Plan, offsets: Ints, phi: bytes, y: bytes) -> None:
    """Write the small files; the one that makes the folder a store comes last."""
    np.save(folder / "offsets.npy", offsets)
    write_parquet(folder / "ids.parquet", {"id": plan.ids})
    keys = draws.client_keys(plan.ids.to_numpy(zero_copy_only=False))
    about = {
        "format": FORMAT,
        "client": plan.client,
        "target": plan.target,
        "features": list(plan.features),
        "n_rows": plan.n_rows,
        "n_clients": len(plan.ids),
        "dtype": np.dtype(plan.precision).name,
        "digest": content_digest(phi, y, offsets, keys),
    }
    write_json(folder / "store.json", about)


def _check_free(out: Path) -> None:
    """Refuse to write over anything but an empty or a packed folder."""
    if not out.exists():
        return
    if Path.cwd().is_relative_to(out.resolve()):
        raise DataError(f"{out}: this is the folder that you are in: choose one below it")
    there = {path.name for path in out.iterdir()} if out.is_dir() else None
    if there is None or not there <= set(FILES) or (there and not is_store(out)):
        raise DataError(f"{out}: there is something else here: choose another --out, or remove it")
