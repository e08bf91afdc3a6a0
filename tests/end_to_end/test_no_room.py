"""A full disk, a limit on files, and a table without room in memory: one line, and old results stay."""

from __future__ import annotations

import os
import re
import sys

import pytest

from helpers.bad_input import COLUMNS, everything_in, fit
from helpers.command_line import assert_one_line, mixfed, run_process


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a disk that is full is of Linux")  # noqa: PTH110
@pytest.mark.parametrize(
    ("blocked", "command", "message"),
    [
        ("p.parquet.partial", "predict result good.csv --out p.parquet", r"p.parquet: No space left on device"),
        ("k.parquet.partial", "assign result good.csv --out k.parquet", r"k.parquet: No space left on device"),
        (
            "result/trace.parquet.partial",
            fit("good.csv", "--clusters 1 --out result"),
            r"result/trace.parquet: No space",
        ),
        ("result/model.json.partial.partial", fit("good.csv", "--clusters 1 --out result"), r"No space left on device"),
        ("result/journal.bin", fit("good.csv", "--clusters 1 --out result"), r"result: No space left on device"),
    ],
)
def test_a_full_disk_is_one_line_and_old_results_stay(work, blocked, command, message):
    before = everything_in(work)
    (work / blocked).symlink_to("/dev/full")
    assert_one_line(mixfed(*command.split()), message)
    after = everything_in(work)
    assert {path: content for path, content in after.items() if path.name != "journal.bin"} == before


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="limits are of Unix")
@pytest.mark.parametrize(
    ("limit", "command", "message"),
    [
        (200, "predict result good.csv --out p.parquet", r"p.parquet: File too large"),
        (500, f"pack good.csv {COLUMNS} --out out", r"out: File too large"),
        (100, fit("good.csv", "--clusters 2 --out result"), r"result: File too large"),
    ],
)
def test_a_limit_on_files_is_one_line_and_nothing_is_half_written(work, limit, command, message):
    import resource

    before = everything_in(work)
    process = run_process(
        *command.split(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2, said
    assert re.fullmatch(rf"mixfed: {message}[^\n]*\n", said), said
    after = everything_in(work)
    assert {path: content for path, content in after.items() if path.name != "journal.bin"} == before


def test_a_table_without_room_in_memory_is_one_line(work, monkeypatch):
    def no_room(*args, **options):
        raise MemoryError

    monkeypatch.setattr("mixfed.clients.store.open_clients", no_room)
    assert_one_line(mixfed(*fit("good.csv").split()), "not enough memory for this table: `mixfed pack` it")
    assert not (work / "out").exists()
