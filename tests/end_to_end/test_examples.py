"""Every example runs as it is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(path):
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_readme_has_no_gaps():
    """Placeholders are for writing, not for reading."""
    text = (EXAMPLES[0].parent.parent / "README.md").read_text()
    assert not [word for word in text.split() if word.isupper() and "_" in word]
