"""The code is built as docs/architecture.md describes it: rooms, modules, and tests that mirror them."""

import re
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "tailwise"
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MODULES = sorted(p.relative_to(PACKAGE) for p in PACKAGE.rglob("*.py") if p.name != "__init__.py")
MOST_AT_THE_TOP = 6

TESTED_ELSEWHERE = {
    "__main__.py": "tests/cli runs `python -m tailwise`",
    "_version.py": "one line; tests/cli/test_app.py prints it",
    "estimator/loading.py": "tests/estimator/test_saving.py loads what it saved",
    "estimator/model_files.py": "tests/estimator/test_saving.py and test_onnx.py call its methods",
}
"""Modules without a test module of their own, and where they are tested."""

WHOLE_ROOM = {
    "cli/test_malformed.py": "every command meets damaged and odd files",
    "cli/test_stopping.py": "signals end whole processes",
    "estimator/test_bounds.py": "the estimator with bounds of the label",
    "estimator/test_dial.py": "the estimator under another label prior",
    "estimator/test_fuzz.py": "mutated models and malformed tables, a part of `make fuzz`",
    "estimator/test_folds.py": "the estimator with a network per fold",
    "estimator/test_inputs.py": "tables of every kind through the estimator",
    "estimator/test_own_backbones.py": "the estimator on networks of the user's own",
    "estimator/test_several_targets.py": "the estimator with several targets",
    "parity/test_parity.py": "ours against numbers of published code",
    "report/test_browser.py": "a browser shows the finished page",
}
"""Test modules of a whole room, and what they test."""


def listed() -> set[Path]:
    """Modules in the plain-text tree of the page."""
    tree = re.search(r"^```\nsrc/tailwise/.*?^```", TEXT, flags=re.MULTILINE | re.DOTALL)
    assert tree is not None
    found = set()
    for line in tree[0].splitlines()[1:-1]:
        folder, _, names = line.strip().partition("/ ")
        room = Path() if folder == "src/tailwise" else Path(folder)
        found |= {room / f"{name}.py" for name in names.split() if "(" not in names}
    return found


def test_the_page_lists_every_module() -> None:
    assert listed() == set(MODULES)


def test_every_room_has_a_paragraph_and_a_line_in_the_import_contract() -> None:
    rooms = {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (contract,) = settings["contracts"]
    layers = [name.strip(" ()") for layer in contract["layers"] for name in layer.split("|")]
    assert sorted(layers) == sorted(rooms)
    assert not settings.get("exclude_type_checking_imports", False)
    described = set(re.findall(r"^\*\*(\w+)\*\* ", TEXT, flags=re.MULTILINE))
    assert described | {"metrics"} == rooms  # tailwise.metrics holds public names only


def test_a_room_says_what_it_is_for() -> None:
    silent = [
        str(init.parent.relative_to(PACKAGE))
        for init in PACKAGE.rglob("__init__.py")
        if not init.read_text(encoding="utf-8").startswith('"""')
    ]
    assert not silent


def test_no_module_name_occurs_twice() -> None:
    names = Counter(module.stem for module in MODULES if module.stem != "__main__")
    assert not {name for name, count in names.items() if count > 1}


def test_few_modules_are_outside_the_rooms() -> None:
    outside = [str(module) for module in MODULES if len(module.parts) == 1]
    assert len(outside) <= MOST_AT_THE_TOP, outside


def test_every_module_has_a_test_module() -> None:
    missing = {
        module.as_posix()
        for module in MODULES
        if not (ROOT / "tests" / module.parent / f"test_{module.stem}.py").is_file()
    }
    assert missing <= set(TESTED_ELSEWHERE)


def test_every_test_module_has_a_module() -> None:
    """A test module tests the module or the package of the same name, except those of whole rooms."""
    packages = [p.parent.relative_to(PACKAGE) for p in PACKAGE.glob("*/**/__init__.py")]
    have = {path.with_name(f"test_{path.stem}.py") for path in MODULES}
    have |= {place / f"test_{package.name}.py" for package in packages for place in (package, package.parent)}
    tests = ROOT / "tests"
    stray = {
        path.relative_to(tests).as_posix()
        for path in tests.rglob("test_*.py")
        if path.parent != tests / "docs" and path.relative_to(tests) not in have
    }
    assert stray == set(WHOLE_ROOM)
