"""The page of times by rows: which lines count, what it concludes, and that it is what its lines give."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks import rows
from tailwise.benchmark.run.results import ResultsFile

LINES = Path(__file__).parents[2] / "research" / "results" / "rows.jsonl"


def line(method: str, size: int, fit: float, predict: float, threads: int = 2) -> dict[str, Any]:
    seconds = {"fit": fit, "predict": predict}
    return {
        "data": f"generated-{size}", "rows": size, "method": method, "title": rows.TITLES[method], "seed": 0,
        "threads": threads, "seconds": seconds, "processor": {k: 2 * v for k, v in seconds.items()},
        "peak_gb": 1.0, "mae": 0.5, "coverage": 0.9, "machine": "some",
    }  # fmt: skip


def test_the_last_line_of_each_run_counts() -> None:
    old, new = line("tail", 1000, 9.0, 1.0), line("tail", 1000, 8.0, 1.0)
    assert rows.latest([old, new]) == [new]


def test_the_page_has_ratios_seconds_per_million_and_a_verdict() -> None:
    lines = [line("catboost", 1000, 1.0, 0.1), line("tail", 1000, 4.0, 1.0)]
    lines += [line("catboost", 10_000, 10.0, 1.0), line("tail", 10_000, 400.0, 10.0)]
    text = rows.page(lines)
    assert "--rows 1000 10000 --threads 2 --write" in text
    assert "| 1,000 | 1.00 | 4.00 | 1000 | 4000 | 4.0 | 4.0 |" in text
    assert "CatBoost: from 1,000 to 10,000 rows the time of a fit grows with the power 1.00" in text
    assert "the power 2.00 of the rows, that of a prediction with 1.00: faster than in proportion." in text
    assert "| 20,000 | - | 1.00 | - | 50.0 | - | - |" in rows.page([*lines, line("tail", 20_000, 1.0, 1.0)])


@pytest.mark.skipif(not LINES.is_file(), reason="the runs are not done yet")
def test_the_page_is_what_its_lines_give() -> None:
    text = LINES.with_suffix(".md").read_text(encoding="utf-8")
    assert text == rows.page(ResultsFile(LINES).records)
