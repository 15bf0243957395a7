"""Links in the documentation resolve, and its Python examples run."""

import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.plugin_samples import forgotten

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ +(.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_resolve(page: Path):
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    broken = []
    for link in links:
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


def test_the_index_lists_every_page():
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    names = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert [name for name in sorted(names) if f"]({name})" not in text] == []


def run_python(page: str, *, quick: bool = False) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    if quick:
        text = re.sub(r"epochs=\d+, random_state", "random_state", text)
        text = text.replace("TailRegressor(", "TailRegressor(base=None, folds=1, epochs=1, ")
        text = text.replace("split(table, rings,", "split(table[:1000], rings[:1000],")
        text = text.replace("size=200", "size=100").replace("(200, 24,", "(100, 24,")  # pictures
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert blocks
    namespace: dict[str, object] = {}
    with forgotten():
        for block in blocks:
            exec(compile(block, page, "exec", dont_inherit=True), namespace)


FITTED = [
    "README.md",
    "docs/command-line.md",
    "docs/estimator.md",
    "docs/explanations.md",
    "docs/metrics.md",
    "docs/serving.md",
    "docs/start.md",
]


@pytest.mark.parametrize("page", FITTED)
def test_python_runs_with_one_small_network(page: str):
    run_python(page, quick=True)


@pytest.mark.slow
@pytest.mark.parametrize("page", FITTED)
def test_python_runs_as_it_stands(page: str, short_training: None):
    run_python(page)


@pytest.mark.parametrize("page", ["docs/depth.md", "docs/own-models.md", "docs/sentences.md"])
def test_python_runs(page: str):
    run_python(page)


@pytest.mark.parametrize("quick", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_python_of_pictures_runs(torchvision: ModuleType, quick: bool):
    run_python("docs/images.md", quick=quick)


def test_readme_names_the_two_commands_together():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "```\nmake demo\nmake test\n```" in text


def test_the_readme_is_short():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.partition("## Read on")[0].split()) < 600
