"""Whatever the pages say of the code by name is there."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

import mixfed

HOME = Path(mixfed.__file__).parent
ROOT = HOME.parents[1]
ROOMS = {path.parent.name for path in HOME.glob("*/__init__.py")}
FILES = ("py", "json", "toml", "html", "parquet", "bin")
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


def fields_of(name):
    """Find a name that may end in a field of a dataclass."""
    try:
        return pkgutil.resolve_name(f"mixfed.{name}")
    except AttributeError:
        owner, field = name.rsplit(".", 1)
        return pkgutil.resolve_name(f"mixfed.{owner}").__dataclass_fields__[field]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_in_a_room_and_every_file_that_a_page_names_is_there(page):
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"`((?:\w+\.)+\w+)`", text):
        if name.split(".")[0] in ROOMS and name.rsplit(".")[-1] not in FILES:
            assert fields_of(name) is not None, name
    for path in re.findall(r"`((?:tests|benchmarks|experiments|examples|docs)/[\w./-]+)`", text):
        assert (ROOT / path).exists() or "results" in path, path
    for room, path in re.findall(r"`(\w+)/([\w/]+(?:\.py)?)`", text):
        assert room not in ROOMS or (HOME / room / path).exists(), path


def test_the_notation_names_a_place_for_every_row_and_each_word_stands_in_the_code():
    text = (ROOT / "docs" / "notation.md").read_text(encoding="utf-8")
    assert len(re.findall(r"`(?:\w+\.){2,}\w+`", text)) >= 45
    sources = "\n".join(path.read_text(encoding="utf-8") for path in HOME.rglob("*.py"))
    for row in re.findall(r"^\| [^|]+ \| ([^|]*`[^|]*) \|", text, re.M):
        for word in re.findall(r"`(\w+)(?:\[\w+\])?`", row):
            assert re.search(rf"\b{word}\b", sources), word
