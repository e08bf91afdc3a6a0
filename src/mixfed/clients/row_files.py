"""Arrays on disk, of which rows are read and written as they are needed."""

import hashlib
import math
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.errors import DataError

_PIECE = 1 << 24
"""Bytes that are hashed at once."""


class RowFile:
    """An .npy file of which rows are read as they are needed, by any number of threads at once.

    It is not mapped into memory: a map as large as the file counts against a limit on memory, and what was read of it
    stays resident. The file stays open, so a store that is replaced meanwhile is read on as it was.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                self.shape, fortran, self.dtype = read(file)
                self.start = file.tell()
        except ValueError as error:
            raise DataError(f"{path}: not an .npy file: pack the table again") from error
        if fortran or self.dtype not in (np.float32, np.float64):
            raise DataError(f"{path}: rows must be in C order, in single or double precision: pack the table again")
        self.row_bytes = self.dtype.itemsize * math.prod(self.shape[1:])
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)
        size, wanted = os.fstat(self._file).st_size, self.start + self.shape[0] * self.row_bytes
        if size < wanted:
            raise self._cut_off(size, wanted)

    def __len__(self) -> int:
        return int(self.shape[0])

    def read(self, begin: int, end: int) -> Array:
        """Read the rows ``begin:end``."""
        rows = np.empty((end - begin, *self.shape[1:]), self.dtype)
        left = rows.reshape(-1).view(np.uint8).data
        place = self.start + begin * self.row_bytes
        while left:
            count = os.preadv(self._file, [left], place)
            if count == 0:
                raise self._cut_off(place, place + len(left))
            left, place = left[count:], place + count
        return rows

    def _cut_off(self, size: int, wanted: int) -> DataError:
        return DataError(f"{self.path}: cut off after {size} of {wanted} bytes: pack the table again")


class RowWriter:
    """An .npy file whose rows are written in any order; those that come in order are hashed on their way."""

    def __init__(self, path: Path, shape: tuple[int, ...], kind: Any) -> None:
        self.path, self.n_rows = path, shape[0]
        self._hash, self._hashed = _new_hash(), 0
        with path.open("wb") as file:
            header = {"descr": np.lib.format.dtype_to_descr(np.dtype(kind)), "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            self.start = file.tell()
        self.row_bytes = np.dtype(kind).itemsize * math.prod(shape[1:])
        self._file = os.open(path, os.O_RDWR)
        size = self.start + self.n_rows * self.row_bytes
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file, 0, size)  # a full disk shows now, not hours later
            else:
                os.truncate(self._file, size)
        except BaseException:
            self.close()
            raise

    def write(self, row: int, values: Array) -> None:
        """Write rows, the first of which is to be ``row``."""
        left, place = values.reshape(-1).view(np.uint8).data, self.start + row * self.row_bytes
        if row < self._hashed:  # written once more
            self._hash, self._hashed = _new_hash(), 0
        if row == self._hashed:
            self._hash.update(left)
            self._hashed += len(values)
        while left:
            count = os.pwrite(self._file, left, place)
            left, place = left[count:], place + count

    def finish(self) -> bytes:
        """Make sure that everything is on disk, and give the digest of the rows in their order."""
        os.fsync(self._file)
        written, piece = RowFile(self.path), max(1, _PIECE // self.row_bytes)
        for begin in range(self._hashed, self.n_rows, piece):
            self._hash.update(written.read(begin, min(begin + piece, self.n_rows)).data)
        return self._hash.digest()

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _new_hash() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=16)
