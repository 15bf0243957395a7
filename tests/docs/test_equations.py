"""docs/equations.md names every formula once, with functions and tests that exist."""

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "equations.md").read_text(encoding="utf-8")
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if re.match(r"\| [A-Z]+:", line)]
KINDS = "|".join(sorted({row[0].partition(":")[0] for row in ROWS}))


def quoted(column: int) -> list[tuple[str, str]]:
    """Pairs of an id and each name in backquotes of that column."""
    return [(row[0], name) for row in ROWS for name in re.findall(r"`([^`]+)`", row[column])]


def resolve(path: str) -> list[Any]:
    """What a dotted path leads through: the module, then each attribute."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        try:
            things: list[Any] = [importlib.import_module(".".join(parts[:length]))]
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            things.append(getattr(things[-1], name))
        return things
    raise ModuleNotFoundError(path)


def test_every_formula_has_one_complete_row() -> None:
    assert len({row[0] for row in ROWS}) == len(ROWS) > 20
    for row in ROWS:
        assert len(row) == 4, f"{row[0]} has {len(row)} cells: is there a bar in its formula?"
        assert row[1] and "`" in row[2] and "`" in row[3], row[0]


@pytest.mark.parametrize(("label", "path"), quoted(2))
def test_the_function_exists_and_cites_the_formula(label: str, path: str) -> None:
    cited = re.compile(rf"{label}\b")
    texts = [inspect.getdoc(thing) or "" for thing in resolve(path)]
    assert any(cited.search(text) for text in texts), f"no docstring on the way to {path} cites {label}"


@pytest.mark.parametrize(("label", "test"), quoted(3))
def test_the_test_exists(label: str, test: str) -> None:
    file, _, name = test.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert names.count(name) == 1, f"{label}: {file} has {names.count(name)} tests named {name}"


@pytest.mark.parametrize("folder", ["docs", "src", "tests"])
def test_no_unknown_formula_is_cited(folder: str) -> None:
    files = [*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.md"), *ROOT.glob("*.md")]
    ids = {row[0] for row in ROWS}
    unknown = {
        f"{file.relative_to(ROOT)}: {label}"
        for file in files
        for label in re.findall(rf"\b(?:{KINDS}):\w+", file.read_text(encoding="utf-8"))
        if label not in ids
    }
    assert not unknown
