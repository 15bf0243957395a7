"""docs/equations.md names every formula once, with functions and tests that exist."""

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "equations.md"
IDS = (
    *("bins", "kernel", "density", "weight"),
    *("I", "A", "S", "F", "G", "posterior"),
    *("nll", "reg", "kl", "recon", "objective"),
    *("predict", "calibrate", "risk", "bound"),
    *("offset", "dial", "balanced"),
)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


TABLE = [cells(line) for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| VIR:")]


def quoted(column: int) -> list[tuple[str, str]]:
    """Pairs of an id and each name in backquotes of that column."""
    return [(row[0], name) for row in TABLE for name in re.findall(r"`([^`]+)`", row[column])]


def resolve(path: str) -> list[Any]:
    """What a dotted path leads through: the module, then each attribute."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: list[Any] = [importlib.import_module(".".join(parts[:length]))]
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            found.append(getattr(found[-1], name))
        return found
    raise ModuleNotFoundError(path)


def test_every_formula_has_exactly_one_row():
    assert [row[0] for row in TABLE] == [f"VIR:{name}" for name in IDS]


def test_rows_are_complete():
    for row in TABLE:
        assert len(row) == 4, f"{row[0]} has {len(row)} cells: is there a bar in its formula?"
        assert row[1] and "`" in row[2] and "`" in row[3], row[0]


@pytest.mark.parametrize(("label", "path"), quoted(2))
def test_the_function_exists_and_cites_the_formula(label: str, path: str):
    found = resolve(path)
    texts = [inspect.getdoc(thing) or "" for thing in found]
    cited = re.compile(rf"{label}\b")
    assert any(cited.search(text) for text in texts), f"no docstring on the way to {path} cites {label}"
    last = found[-1]
    function = last.fget if isinstance(last, property) else last
    assert callable(function) and function.__module__.startswith("tailwise")


@pytest.mark.parametrize(("label", "test"), quoted(3))
def test_the_test_exists(label: str, test: str):
    file, _, name = test.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    assert len(functions) == 1, f"{label}: {file} has {len(functions)} tests named {name}"
    assert name.startswith("test_") and any(
        isinstance(node, ast.Assert | ast.Call) for node in ast.walk(functions[0])
    )


@pytest.mark.parametrize("folder", ["docs", "src", "tests"])
def test_no_unknown_formula_is_cited(folder: str):
    files = [*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.md"), *ROOT.glob("*.md")]
    unknown = {
        f"{file.relative_to(ROOT)}: VIR:{name}"
        for file in files
        for name in re.findall(r"\bVIR:(\w+)", file.read_text(encoding="utf-8"))
        if name not in IDS
    }
    assert not unknown
