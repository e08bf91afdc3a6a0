"""Compiled code that is kept on disk: it is used again only while it would be compiled the same way again."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

from numba import njit

from mixfed import compiled

SOURCES = Path(compiled.__file__).parent
LOSSES = """
import numpy as np
from mixfed.kernels import tile_losses
losses = np.empty((1, 8))
tile_losses(0, np.full(1, 3.0), np.zeros((1, 8)), np.arange(2), losses)
print(losses[0, 0], sum(tile_losses.stats.cache_hits.values()))
"""


def imported(path):
    """Name the package's own modules that a module takes names from."""
    tree = ast.parse(path.read_text())
    return {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 1}


def test_all_that_is_compiled_into_others_is_looked_at():
    kernels = {
        path for path in SOURCES.glob("*.py") if "\n@compiled" in path.read_text() or "\n@inlined" in path.read_text()
    }
    named = {path.stem for path in kernels} | {"compiled"}
    assert {name for path in kernels for name in imported(path)} & named == set(compiled._PARTS)


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
    losses = package / "losses.py"
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
