"""The page about the choice of defaults."""

from pathlib import Path

from tests.benchmark.conftest import run_bench


def test_without_prepared_data_the_page_alone_is_written(tmp_path: Path) -> None:
    lines = Path(__file__).parents[3] / "research" / "results" / "defaults.jsonl"
    out = tmp_path / "defaults.jsonl"
    out.write_bytes(lines.read_bytes())
    assert run_bench(["choose-defaults", "--out", str(out)]) == 0
    assert out.with_suffix(".md").read_text(encoding="utf-8") == lines.with_suffix(".md").read_text("utf-8")
    assert out.read_bytes() == lines.read_bytes()
