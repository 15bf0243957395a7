"""Links in the documentation resolve, and its Python examples run."""

import pkgutil
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.plugin_samples import forgotten

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "research").rglob("*.md")])
PAGES = [page for page in PAGES if page.parent.name != "templates"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FITTED = ["estimator", "explanations", "intervals", "metrics", "serving", "start"]


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ +(.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_resolve() -> None:
    broken = []
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            name, _, anchor = link.partition("#")
            target = page.parent / name if name else page
            if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target))):
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert broken == []


def test_names_of_the_package_exist() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    names = {
        name
        for page in pages
        for name in re.findall(r"(?<![\w./])tailwise(?:\.\w+)+(?!\w)", page.read_text(encoding="utf-8"))
        if not name.endswith(".md")
    }
    missing = []
    for name in sorted(names):
        try:
            pkgutil.resolve_name(name)
        except (ImportError, AttributeError):
            missing.append(name)
    assert len(names) > 50 and missing == []


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


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{name}.md" for name in FITTED)])
def test_python_runs_with_one_small_network(page: str) -> None:
    run_python(page, quick=True)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", *(f"docs/{name}.md" for name in FITTED)])
def test_python_runs_as_it_stands(page: str, short_training: None) -> None:
    run_python(page)


def test_python_of_own_models_runs() -> None:
    run_python("docs/own-models.md")


def test_python_of_pictures_runs(torchvision: ModuleType) -> None:
    run_python("docs/images.md", quick=True)


def test_the_first_screen_of_the_readme() -> None:
    assert "```\nmake demo\nmake test\n```" in README
    assert len(README.partition("## Read on")[0].split()) < 500
