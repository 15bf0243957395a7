"""A whole suite from Python: prepare, run, write tables."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tailwise.benchmark import SUITES, Recipe, Source, Suite, bench
from tailwise.benchmark.data.suites import generated
from tailwise.benchmark.run.results import ResultsFile


def test_a_suite_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = tuple(
        Source(name, "y", partial(generated, rows=200, seed=seed)) for seed, name in enumerate("ab")
    )
    recipe = Recipe(backbone_options={"hidden": (8,)}).within(epochs=2, trials=1)
    monkeypatch.setitem(SUITES, "tiny", Suite(sources, recipe=recipe, methods="vanilla,vir,peers", seeds=1))
    monkeypatch.setattr("tailwise.benchmark.run.peers.peer_contenders", list)
    monkeypatch.setattr("tailwise.benchmark.run.peers.missing_peers", lambda: ["ngboost"])
    lines: list[str] = []
    run = partial(bench, "tiny", out=tmp_path / "out", work=tmp_path / "work", progress=False)
    summary = run(report=lines.append)
    assert summary.done == 4 and not summary.failed
    assert lines[0] == "ngboost is left out because it is not installed: pip install 'tailwise[peers]'"
    page = (tmp_path / "out" / "tiny.md").read_text()
    assert "## What it shows" in page and "## Times" not in page
    assert run(times=True).done == 0
    page = (tmp_path / "out" / "tiny.md").read_text()
    assert "## Times" in page and "multiple of Vanilla's (geometric mean)" in page
    assert len(ResultsFile(tmp_path / "out" / "times.jsonl").records) == 4
    own = (tmp_path / "out" / "results.jsonl").read_bytes()
    assert run(methods="vanilla", recipe=replace(recipe, weights="sqinv")).done == 2
    assert "weights its rows by SQINV" in (tmp_path / "out" / "tiny-sqinv.md").read_text()
    assert (tmp_path / "out" / "results.jsonl").read_bytes() == own
    with pytest.raises(ValueError, match="unknown suite"):
        bench("quack", out=tmp_path)
