"""Compiled code that is kept on disk: it is used again only while it would be compiled the same way again."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from numba import njit

from mixfed.core import compile as compiled

SOURCES = Path(compiled.__file__).parents[1]
LOSSES = """
import numpy as np
from mixfed.kernels.tiles import tile_losses
losses = np.empty((1, 8))
tile_losses(0, np.full((1, 1), 3.0), np.zeros((1, 8)), np.zeros(1, np.int64), np.ones(1, np.int64), losses)
print(losses[0, 0], sum(tile_losses.stats.cache_hits.values()))
"""


def imported(path):
    """Name the package's own modules that a module takes names from, as files."""
    home = path.relative_to(SOURCES).parts[:-1]
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom) and node.level]
    bases = [(node, [*home[: len(home) - node.level + 1], *(node.module or "").split(".")]) for node in nodes]
    for node, base in bases:
        for parts in (base, *([*base, alias.name] for alias in node.names)):
            file = SOURCES.joinpath(*filter(None, parts)).with_suffix(".py")
            if file.exists():
                yield file


def test_all_that_is_compiled_into_others_is_looked_at():
    """Whatever kernels take from a module with compiled functions is in a room that is looked at."""
    kernels = {path for path in SOURCES.rglob("*.py") if re.search(r"^@(compiled|inlined)", path.read_text(), re.M)}
    homes = [
        other.relative_to(SOURCES).parts[0]
        for path in kernels
        if path.relative_to(SOURCES).parts[0] in compiled._ROOMS
        for other in imported(path)
        if other in kernels
    ]
    assert len(homes) >= 20
    assert set(homes) <= {*compiled._ROOMS, "beside.py"}


def test_a_change_in_what_a_kernel_calls_is_a_change_of_the_kernel(tmp_path):
    package = tmp_path / "mixfed"
    shutil.copytree(SOURCES, package, ignore=shutil.ignore_patterns("__pycache__"))
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def loss_of_three():
        run = subprocess.run(
            [sys.executable, "-c", LOSSES], env=environment, check=True, capture_output=True, text=True
        )
        return run.stdout.split()

    assert loss_of_three() == ["4.5", "0"]
    assert loss_of_three() == ["4.5", "1"]
    losses = package / "families" / "base.py"
    changed = losses.read_text().replace("return 0.5 *", "return 5.0 *")
    assert changed != losses.read_text()
    losses.write_text(changed)
    assert loss_of_three() == ["45.0", "0"]


def test_compiling_is_told_once_and_only_if_there_is_something_to_compile():
    calls = []

    @njit
    def twice(value):
        return 2 * value

    with compiled.told_of_compiling(lambda: calls.append("told")):
        twice(1)
        twice(1.0)
    assert calls == ["told"]
    with compiled.told_of_compiling(lambda: calls.append("told again")):
        twice(2)
    assert calls == ["told"]
