"""The page about the search for VIR's prior."""

from pathlib import Path

import pytest

from tailwise.benchmark.pages.prior_page import describe_decision
from tailwise.benchmark.run.defaults import Decision
from tailwise.benchmark.run.prior import OPTION
from tailwise.benchmark.run.results import ResultsFile
from tests.benchmark.conftest import run_bench

PRESENT, GRID, RANDOM = (0.0, 0.5, 1.5, 0.1), (0.0, 0.1, 1.5, 0.01), (0.0, 0.2, 1.7, 0.02)


def test_the_page_lists_priors_and_says_what_to_do(tmp_path: Path) -> None:
    out = tmp_path / "priors.jsonl"
    lines = ResultsFile(out)
    scores = {PRESENT: (2.0, 4.0), GRID: (1.0, 2.0), RANDOM: (2.0, None)}
    for seed in (0, 1):
        for prior, (x, y) in scores.items():
            if seed == 0 or prior != RANDOM:
                options = {OPTION: list(prior)}
                line = {"seed": seed, "options": options, "scores": {"x": x, "y": y}, "machine": "some"}
                lines.append({"method": "vir-paper", **line})
    assert run_bench(["search-prior", "--out", str(out)]) == 0
    text = out.with_suffix(".md").read_text(encoding="utf-8")
    assert "The search uses seed 0, the check seeds 1." in text
    assert "nu0 0.1, alpha0 1.5, beta0 0.01 against the present nu0 0.5, alpha0 1.5, beta0 0.1" in text
    assert "-50.0 ± 0.0% with the other seeds: adopt it." in text
    rows = [row for row in text.splitlines() if row.startswith("| 0.")]
    assert rows == [
        "| 0.1 | 1.5 | 0.01 | grid | -50.0 ± 0.0 |",
        "| 0.5 | 1.5 | 0.1 | present | - |",
        "| 0.2 | 1.7 | 0.02 | random | failed |",
    ]


@pytest.mark.parametrize(
    "best, change, words", [(GRID, 0.1, "keep the present one"), (PRESENT, float("nan"), "no other prior")]
)
def test_a_prior_that_is_not_better_is_not_adopted(
    best: tuple[float, ...], change: float, words: str
) -> None:
    assert words in describe_decision(
        Decision("vir-paper", 3, {OPTION: PRESENT}, {OPTION: best}, -0.1, change)
    )


def test_an_empty_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_bench(["search-prior", "--out", str(tmp_path / "none.jsonl")]) == 1
    assert "none.jsonl has no line: run the search first" in " ".join(capsys.readouterr().err.split())
