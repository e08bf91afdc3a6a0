"""Compiled code that is kept on disk: it is used again only while it would be compiled the same way again."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from numba import njit

from mixfed.core import compile as compiled

SOURCES = Path(compiled.__file__).parents[1]
OUTSIDE = SOURCES / "exchange" / "codec.py"
"""Which no compiled function calls into."""
LOSSES = """
import numpy as np
from mixfed.kernels.compiled.tiles import tile_losses
losses = np.empty((1, 8))
tile_losses(0, np.full(1, 3.0), np.zeros((1, 8)), np.arange(2), losses)
print(losses[0, 0], sum(tile_losses.stats.cache_hits.values()))
"""


def imported(path):
    """Find the package's own files that a module takes more than classes from, however many folders up they are."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            home = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            for name in (alias.name for alias in node.names):
                file = next(filter(Path.is_file, (home / f"{name}.py", home.with_suffix(".py"), home / "__init__.py")))
                if not re.search(rf"^class {name}\b", file.read_text(), re.M):  # which is not compiled
                    yield file


def test_all_that_is_compiled_into_others_is_looked_at():
    """Whatever a module with compiled functions takes from another is among the sources that are looked at."""
    kernels = {path for path in SOURCES.rglob("*.py") if re.search(r"^@(compiled|inlined)\b", path.read_text(), re.M)}
    named = kernels | {Path(compiled.__file__)}
    edges = {(path, used) for path in kernels for used in imported(path) if used in named}
    assert len(edges) > 12
    assert {used for _, used in edges} <= {*compiled.sources(SOURCES, compiled.PARTS), OUTSIDE}


def test_sources_are_all_files_below_what_is_named_in_order(tmp_path):
    for name in ("a/z.py", "a/b/c.py", "a/b/no.txt", "b.py", "c.py", "empty/no.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = compiled.sources(tmp_path, ("b.py", "a", "a/b"))
    assert [path.relative_to(tmp_path).as_posix() for path in found] == ["a/b/c.py", "a/z.py", "b.py"]
    for missing in ("d.py", "d", "empty"):
        with pytest.raises(FileNotFoundError, match=f"{missing}: no Python files"):
            compiled.sources(tmp_path, ("b.py", missing))


@pytest.mark.compiles
@pytest.mark.process
@pytest.mark.slow
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


@pytest.mark.compiles
def test_compiling_is_told_once_and_only_if_there_is_something_to_compile():
    calls = []

    @njit
    def twice(value):
        return 2 * value

    with compiled.telling(lambda: calls.append("told")):
        twice(1)
        twice(1.0)
    assert calls == ["told"]
    with compiled.telling(lambda: calls.append("told again")):
        twice(2)
    assert calls == ["told"]
