"""The overview of results names every page, and its times are those of the results files."""

from pathlib import Path

from docs import result_times

ROOT = Path(__file__).parents[2]
LINKS = {
    "research/results/README.md": "]({}.md)",
    "docs/index.md": "](../research/results/{}.md)",
    "mkdocs.yml": ": repository/research/results/{}.md",
}


def test_every_page_is_linked() -> None:
    pages = [page.stem for page in result_times.FOLDER.glob("*.md") if page.stem != "README"]
    for file, link in LINKS.items():
        text = (ROOT / file).read_text(encoding="utf-8")
        assert [name for name in pages if link.format(name) not in text] == [], file


def test_the_times_are_those_of_the_lines() -> None:
    text = (result_times.FOLDER / "README.md").read_text(encoding="utf-8")
    assert result_times.with_times(text) == text, "run `python docs/result_times.py`"
    rows = "| a | `demo.jsonl` | b | wrong |\n| a | no file | b | kept |\n"
    assert "wrong" not in result_times.with_times(rows) and "| kept |" in result_times.with_times(rows)
