"""The site has every public name, its notebooks are what their scripts give, and links lead to its pages."""

import importlib
import inspect
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from docs import notebooks, site_hooks
from tailwise import TailRegressor

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TUTORIALS = sorted(path.stem for path in notebooks.TUTORIALS.glob("*.py"))
QUICK = "label-shift"
PAGES = {
    "tailwise": ["tailwise"],
    "data": ["tailwise.data"],
    "images": ["tailwise.images"],
    "explanations": ["tailwise.explanations"],
    "metrics": ["tailwise.metrics"],
    "methods": ["tailwise.methods"],
    "displays": ["tailwise.report.displays"],
    "serving": ["tailwise.serving.web", "tailwise.serving.pyfunc", "tailwise.serving.model_card"],
}
"""Pages of the API, and the modules whose public names they show."""
MODULES = [module for modules in PAGES.values() for module in modules]


def test_every_page_of_the_api_is_known_and_in_its_index() -> None:
    index = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    pages = {path.stem for path in (DOCS / "api").glob("*.md")} - {"index"}
    assert pages == set(PAGES) == set(re.findall(r"\]\((\w+)\.md\)", index))


@pytest.mark.parametrize("page", PAGES)
def test_every_public_name_is_on_its_page(page: str) -> None:
    text = (DOCS / "api" / f"{page}.md").read_text(encoding="utf-8")
    found = re.findall(r"^::: (\S+)$", text, flags=re.MULTILINE)
    names = [f"{module}.{name}" for module in PAGES[page] for name in importlib.import_module(module).__all__]
    assert sorted(found) == sorted(names)


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_says_what_a_user_gets(module: str) -> None:
    """A docstring that is a sentence; that of a dataclass without one would be its signature."""
    public = importlib.import_module(module)
    silent = []
    for name in public.__all__:
        thing = getattr(public, name)
        members = inspect.getmembers(thing, _is_documented) if inspect.isclass(thing) else []
        for place, member in [(name, thing), *((f"{name}.{k}", v) for k, v in members if k[0] != "_")]:
            text = inspect.getdoc(member) or ""
            ours = not callable(member) or str(getattr(member, "__module__", "")).startswith("tailwise")
            if ours and (len(text.split()) < 2 or text.startswith(f"{name}(")):
                silent.append(place)
    assert silent == []


def _is_documented(member: object) -> bool:
    return inspect.isroutine(member) or isinstance(member, property | classmethod)


def test_the_page_of_the_estimator_shows_all_its_methods_and_fit_first() -> None:
    text = (DOCS / "api" / "tailwise.md").read_text(encoding="utf-8")
    block = re.search(r"^::: tailwise.TailRegressor\n(.*?)\n\n", text, flags=re.MULTILINE | re.DOTALL)
    assert block is not None
    shown = re.findall(r"^ +- (\w+)$", block[1], flags=re.MULTILINE)
    members = {name for name, member in vars(TailRegressor).items() if _is_documented(member)}
    public = {name for name in members if not name.startswith(("_", "set_"))}  # scikit-learn adds set_...
    assert shown[0] == "fit" and sorted(shown) == sorted(public)


@pytest.mark.parametrize("name", TUTORIALS)
def test_a_notebook_has_the_cells_of_its_script_and_outputs(name: str) -> None:
    script = notebooks.TUTORIALS / f"{name}.py"
    cells = notebooks.read_cells(script.read_text(encoding="utf-8"))
    stored = json.loads(script.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]
    found = [notebooks.Cell(cell["cell_type"], "".join(cell["source"])) for cell in stored]
    assert found == cells, f"run `make tutorials ARGS={name}`"
    assert any(cell.get("outputs") for cell in stored)
    assert re.search(rf"\({name}\.ipynb\)", (notebooks.TUTORIALS / "index.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n == QUICK else pytest.mark.slow) for n in TUTORIALS]
)
def test_a_tutorial_runs(name: str, short_training: None) -> None:
    cells = notebooks.read_cells((notebooks.TUTORIALS / f"{name}.py").read_text(encoding="utf-8"))
    outputs = notebooks.run_cells(cells, name)
    assert sum(map(len, outputs)) >= 2


@pytest.mark.parametrize(
    "page, link, rewritten",
    [
        ("tutorials/index.md", "[a](prices.ipynb)", "[a](prices.md)"),
        ("results.md", "[a](../research/results/rows.md#b)", "[a](repository/research/results/rows.md#b)"),
        ("repository/README.md", "[a](docs/estimator.md)", "[a](../estimator.md)"),
        ("repository/README.md", "[a](examples/)", "a"),
        ("own-models.md", "[a](../examples/fabric_loop.py)", "[a](repository/examples/fabric_loop.py.md)"),
        ("estimator.md", "```\n[a](../README.md)\n```", "```\n[a](../README.md)\n```"),
    ],
)
def test_links_lead_to_pages_of_the_site(page: str, link: str, rewritten: str) -> None:
    here = SimpleNamespace(file=SimpleNamespace(src_uri=page), meta={})
    assert site_hooks.on_page_markdown(link, here, None, None) == rewritten  # type: ignore[arg-type]


def test_every_formula_is_a_section_of_the_site() -> None:
    text = (DOCS / "equations.md").read_text(encoding="utf-8")
    here = SimpleNamespace(file=SimpleNamespace(src_uri="equations.md"), meta={})
    shown = site_hooks.on_page_markdown(text, here, None, None)  # type: ignore[arg-type]
    names = re.findall(r"^\| ([A-Z]+:\w+) \|", text, flags=re.MULTILINE)
    assert names and re.findall(r"^### (.*)$", shown, flags=re.MULTILINE) == names
    assert "\n| " not in shown


@pytest.mark.slow
def test_the_site_builds_strictly_and_loads_nothing_from_outside(tmp_path: Path) -> None:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), strict=True))
    pages = {path: path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")}
    outside = re.compile(
        r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=\"(?:https?:)?//", flags=re.IGNORECASE
    )
    assert [path for path, text in pages.items() if outside.search(text)] == []
    assert "TailRegressor" in (tmp_path / "search" / "search_index.js").read_text(encoding="utf-8")
