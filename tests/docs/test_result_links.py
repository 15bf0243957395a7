"""Pages of results are linked once they exist."""

from pathlib import Path

import pytest

from docs import result_links

PAGES = sorted((result_links.ROOT / "docs" / "results").glob("*.md"))


def test_every_page_that_exists_is_linked() -> None:
    for file, link in result_links.FILES.items():
        text = (result_links.ROOT / file).read_text(encoding="utf-8")
        found = [page.stem for page in PAGES if page.stem != "README"]
        missing = [name for name in found if link.format(name) not in text]
        assert missing == [], f"{file}: run `python docs/result_links.py`"


@pytest.mark.parametrize("page", result_links.PAGES, ids=lambda page: page.name)
def test_a_page_is_linked_behind_its_neighbour(page: result_links.Page, tmp_path: Path) -> None:
    results = tmp_path / "docs" / "results"
    results.mkdir(parents=True)
    before = {}
    for file, link in result_links.FILES.items():
        lines = (result_links.ROOT / file).read_text(encoding="utf-8").splitlines()
        before[file] = [line for line in lines if link.format(page.name) not in line]
        (tmp_path / file).write_text("\n".join([*before[file], ""]), encoding="utf-8")
    assert result_links.add_links(tmp_path) == []  # there is no page yet
    (results / f"{page.name}.md").write_text("# Page\n", encoding="utf-8")
    (results / page.lines).parent.mkdir(exist_ok=True)
    runs = '{"seconds": {"fit": 7000.0, "unit": 9}}\n{"seconds": 200.0}\n'
    (results / page.lines).write_text(runs, encoding="utf-8")
    assert len(result_links.add_links(tmp_path)) == 3
    assert result_links.add_links(tmp_path) == []
    for file, link in result_links.FILES.items():
        lines = (tmp_path / file).read_text(encoding="utf-8").splitlines()
        (place,) = (i for i, line in enumerate(lines) if link.format(page.name) in line)
        assert link.format(page.after) in lines[place - 1]
        assert not file.endswith("README.md") or f"| 2.0 hours{page.machine} |" in lines[place]
        assert [*lines[:place], *lines[place + 1 :]] == before[file]
