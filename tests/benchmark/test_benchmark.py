"""A whole suite from Python: prepare, run, write tables."""

from pathlib import Path

import pytest

from tailwise.benchmark import Recipe, bench
from tailwise.benchmark.run.results import ResultsFile


def test_quick_suite_end_to_end(tmp_path: Path) -> None:
    lines: list[str] = []
    recipe = Recipe().within(epochs=2, trials=1)
    options = {"out": tmp_path / "out", "work": tmp_path / "work", "recipe": recipe, "progress": False}
    methods = {"methods": "vanilla,vir", "seeds": (0,)}
    summary = bench("quick", **options, **methods, report=lines.append)  # type: ignore[arg-type]
    assert summary.done == 4 and not summary.failed
    assert "## What it shows" in (tmp_path / "out" / "quick.md").read_text()
    page = (tmp_path / "out" / "quick.md").read_text()
    assert "## Times" not in page
    again = bench("quick", **options, **methods, times=True)  # type: ignore[arg-type]
    assert again.done == 0
    page = (tmp_path / "out" / "quick.md").read_text()
    assert "## Times" in page and "multiple of Vanilla's (geometric mean)" in page
    assert len(ResultsFile(tmp_path / "out" / "times.jsonl").records) == 4
    with pytest.raises(ValueError, match="unknown suite"):
        bench("quack", **options)  # type: ignore[arg-type]
