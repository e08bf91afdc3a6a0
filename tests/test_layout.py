"""The layout: who may import whom, which packages belong where, how long a file may be, one name for one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import mixfed

HOME = Path(mixfed.__file__).parent
FILES = sorted(HOME.rglob("*.py"))
TESTS = Path(__file__).parent

EVERYTHING = {
    *("core", "families", "kernels", "exchange", "tables", "clients", "model", "recipes", "evaluation"),
    *("federation", "report", "estimator", "cli"),
}
MAY: dict[str, set[str]] = {
    "core": set(),
    "families": {"core"},
    "kernels": {"core", "families"},
    "exchange": {"core", "families"},
    "tables": {"core"},
    "clients": {"core", "families", "kernels", "exchange", "tables"},
    "model": {"core", "families", "kernels", "exchange", "tables", "clients"},
    "recipes": {"core", "families", "kernels", "exchange", "model"},  # not clients, not tables: no rows
    "evaluation": {"core", "families", "kernels", "exchange", "tables", "clients", "model", "recipes"},
    "federation": {"core", "families", "exchange", "tables", "clients", "model", "recipes"},
    "report": {"core", "families", "exchange", "tables", "model", "recipes", "evaluation"},
    "estimator": EVERYTHING - {"federation", "cli"},
    "cli": EVERYTHING,
}
EXCEPTIONS = {
    ("model.model", "report"): "a notebook shows a model by its report",
    ("model.fit", "report"): "a notebook shows a fit by its report",
}
WITHIN = {  # parts of rooms that must not know each other
    "recipes.paper": ("recipes.auto", "recipes.personal"),
    "recipes.auto": ("recipes.paper",),
    "exchange": ("exchange.journal",),  # of the files that say what travels
}
ENGINES = ("federation.flare",)
ONLY = {  # packages, and where they may be imported
    "nvflare": ("federation.flare",),
    "psutil": ("federation.flare",),
    "distributed": ("clients.dask",),
    "dask": ("clients.dask",),
    "rich": ("cli",),
    "click": ("cli",),
    "llvmlite": (),
    "numba": ("core.compile",),
    "threadpoolctl": ("core.threads",),
    "sklearn": ("estimator", "evaluation.simulation"),
    "mlflow": ("report.mlflow",),
    "pyarrow": (
        *("tables", "clients", "model.assignment", "model.prediction"),
        "federation.flare.local",
    ),
}
LONGEST = 350
LONG: dict[str, str] = {}
NO_ROOMS = {"contracts", "end_to_end", "fixtures", "helpers", "identities"}  # folders of tests about several rooms
PROTOCOL = {"init", "step", "fit", "State", "Info"}  # words that the algorithms of a room answer to


def name_of(path: Path) -> str:
    """Name a file of the package as a module, without the package."""
    parts = path.relative_to(HOME).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give what a file imports, anywhere in it: modules of the package, and other packages."""
    package = path.relative_to(HOME).parent.parts
    own, others = [], []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            others += [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            others.append(str(node.module).split(".")[0])
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1], *(node.module.split(".") if node.module else [])]
            for alias in node.names:
                full = HOME.joinpath(*base, alias.name)
                own.append(".".join([*base, alias.name] if full.is_dir() or full.with_suffix(".py").exists() else base))
    return tuple(own), tuple(others)


def within(module: str, places: tuple[str, ...]) -> bool:
    """Whether a module is one of the places, in one of them, or named after one (dask: dask_shards)."""
    return any(module == place or module.startswith((f"{place}.", f"{place}_")) for place in places)


def test_rooms_import_only_what_they_may():
    edges, wrong = 0, []
    for path in FILES:
        module = name_of(path)
        room = module.split(".")[0]
        for other in imports(path)[0]:
            target = other.split(".")[0]
            edges += 1
            if room in ("", "__main__") or target in ("", room):
                continue
            if target not in MAY[room] and (module, target) not in EXCEPTIONS:
                wrong.append(f"{module} imports {other}")
    assert edges > 400
    assert not wrong, "\n".join(wrong)


def test_exceptions_are_needed():
    used = {(name_of(path), other.split(".")[0]) for path in FILES for other in imports(path)[0]}
    assert set(EXCEPTIONS) <= used


def test_parts_of_a_room_do_not_know_each_other():
    wrong = []
    for path in FILES:
        module = name_of(path)
        for other in imports(path)[0]:
            closed = tuple(place for part, places in WITHIN.items() if within(module, (part,)) for place in places) + (
                ENGINES if module.startswith("federation") and not within(module, ENGINES) else ()
            )
            if within(other, closed):
                wrong.append(f"{module} imports {other}")
    assert not wrong, "\n".join(wrong)


def test_packages_are_imported_only_where_they_belong():
    seen, wrong = set(), []
    for path in FILES:
        for package in imports(path)[1]:
            seen.add(package)
            if package in ONLY and not within(name_of(path), ONLY[package]):
                wrong.append(f"{name_of(path)} imports {package}")
    assert {"numba", "pyarrow", "sklearn", "rich", "nvflare", "distributed"} <= seen
    assert not wrong, "\n".join(wrong)


def test_the_top_has_few_names_and_every_room_says_what_it_is_for():
    top = {name_of(path).split(".")[0] for path in FILES} - {"", "__main__"}
    assert top == set(MAY)
    assert len(top) <= 13
    for path in HOME.rglob("*.py"):
        if path.name == "__init__.py" and path.parent != HOME:
            said = ast.get_docstring(ast.parse(path.read_text()))
            assert said, f"{name_of(path)} does not say what it is for"
            assert len(said) > 60, f"{name_of(path)} does not say what it is for, and for whom"
    for path in HOME.rglob("*/"):
        assert not list(path.glob("*.py")) or (path / "__init__.py").exists(), f"{path.name} has no __init__"


def test_files_are_short_enough_to_read():
    long = {name_of(path): len(path.read_text().splitlines()) for path in FILES}
    assert {name for name, lines in long.items() if lines > LONGEST} == set(LONG)


def test_every_exchange_has_an_answer_of_the_same_name():
    exchanges = {path.stem for path in (HOME / "exchange").glob("*.py")}
    answers = {path.stem for path in (HOME / "clients" / "answers").glob("*.py")} - {"__init__", "dispatch"}
    assert answers <= exchanges
    assert exchanges - answers == {"__init__", "base", "codec", "journal", "pool", "registry", "shapes"}


def test_no_public_name_stands_twice_in_a_room():
    homes = defaultdict(list)
    for path in FILES:
        module = name_of(path)
        room = module.split(".")[0]
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                homes[room, node.name].append(module)
    twins = ("kernels.compiled", "kernels.plain")  # a plain kernel's compiled twin has its name
    for modules in homes.values():
        if len(modules) == 2 and all(map(within, sorted(modules), [(room,) for room in twins])):
            modules.pop()
    twice = {key: modules for key, modules in homes.items() if len(modules) > 1 and key[1] not in PROTOCOL}
    assert not twice, "\n".join(f"{name}: {modules}" for (_, name), modules in twice.items())


def test_no_test_file_imports_another_one():
    """What several need is in tests/helpers, so that each can be read, moved and run alone."""
    wrong = []
    for path in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            if isinstance(node, ast.ImportFrom):
                names = ["." * node.level + f"{node.module or ''}.{name}" for name in names]
            wrong += [
                f"{path.relative_to(TESTS)} imports {name}"
                for name in names
                if name.startswith(".") or any(part.startswith(("test_", "conftest")) for part in name.split("."))
            ]
    assert not wrong, "\n".join(wrong)


def test_folders_of_tests_are_named_after_rooms():
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("*.py")} - {Path()}
    of_rooms = {folder for folder in folders if folder.parts[0] not in NO_ROOMS}
    assert not [folder for folder in of_rooms if not (HOME / folder / "__init__.py").exists()]
