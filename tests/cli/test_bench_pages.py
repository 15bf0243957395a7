"""Commands that write pages of finished runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmark.conftest import run_bench


def test_stsb_reads_the_results_of_the_repository_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(__file__).parents[2] / "research" / "results"
    monkeypatch.chdir(tmp_path)
    for name in ("stsb-paper", "stsb-modern"):
        (tmp_path / "research" / "results" / name).mkdir(parents=True)
        lines = (source / name / "results.jsonl").read_text("utf-8").splitlines(keepends=True)
        few = [line for line in lines if json.loads(line)["method"] in ("vanilla", "vir")]
        (tmp_path / "research" / "results" / name / "results.jsonl").write_text(
            "".join(few), encoding="utf-8"
        )
    assert run_bench(["stsb"]) == 0
    page = (tmp_path / "research" / "results" / "stsb.md").read_text(encoding="utf-8")
    assert page.index("## stsb-paper") < page.index("## stsb-modern")
    assert run_bench(["stsb", "research/results/stsb-modern/results.jsonl", "--out", "one.md"]) == 0
    assert "## stsb-paper" not in Path("one.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", ["tables", "faces", "depth", "estimator-page"])
def test_a_missing_results_file_is_named(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_bench([command, "nowhere.jsonl", "--out", "page.md"]) == 1
    assert "nowhere.jsonl does not exist" in capsys.readouterr().err
