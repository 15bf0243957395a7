"""From raw tables to arrays: splits, caps, and encodings that only the training part decides."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tailwise.benchmark import SUITES, Source, prepare
from tailwise.benchmark.data.suites import generated, prepared_data


def test_prepare_writes_once(tmp_path: Path) -> None:
    lines: list[str] = []
    paths = prepare("quick", tmp_path, (0,), max_rows=100, per_bin=2, report=lines.append)
    assert [p.name for p in paths] == ["abalone-0.npz", "generated-0.npz"]
    assert lines[0].startswith("abalone-0.npz: 100 training rows of 4177")
    assert json.loads((tmp_path / "suite.json").read_text())["max_rows"] == 100
    times = [p.stat().st_mtime_ns for p in paths]
    prepare("quick", tmp_path, (0,), max_rows=100, per_bin=2)
    assert times == [p.stat().st_mtime_ns for p in paths]
    assert prepared_data(tmp_path, (0,)) == ["abalone", "generated"]
    with pytest.raises(ValueError, match="was prepared with max_rows = 100, not 50"):
        prepare("quick", tmp_path, (0,), max_rows=50, per_bin=2)


def test_unknown_suite(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown suite 'quik'; did you mean 'quick'"):
        prepare("quik", tmp_path, (0,))


def test_generated_data_has_a_tail() -> None:
    y = generated(2000)["y"].to_numpy()
    assert np.isfinite(y).all() and y.max() > 8 * np.median(y)
    pd.testing.assert_frame_equal(generated(50), generated(50))


def test_tabular_needs_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAILWISE_DATA", raising=False)
    with pytest.raises(ValueError, match="set the environment variable TAILWISE_DATA"):
        prepare("tabular", tmp_path, (0,))
    monkeypatch.setenv("TAILWISE_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"abalone\.csv\.gz is missing"):
        prepare("tabular", tmp_path, (0,))


@pytest.mark.slow
@pytest.mark.parametrize("source", SUITES["tabular"].sources, ids=lambda s: s.name)
def test_every_table_of_the_suite(data_root: Path, source: Source) -> None:
    problem = source.problem(0, max_rows=500, per_bin=3)
    assert len(problem.y_train) == 500 and len(problem.y_test) > 20
    for part in (problem.x_train, problem.x_valid, problem.x_test):
        assert np.isfinite(part).all()
    columns = set(source.load().columns)
    assert source.target in columns and set(source.leaks) <= columns


@pytest.mark.slow
@pytest.mark.parametrize("source", SUITES["development"].sources, ids=lambda s: s.name)
def test_development_tables_are_skewed_and_none_of_the_others(source: Source) -> None:
    assert source.name not in {s.name for s in SUITES["tabular"].sources}
    y = source.load()[source.target].dropna()
    assert len(y) > 1000 and y.skew() > 1
    problem = source.problem(0, max_rows=300, per_bin=3)
    assert np.isfinite(problem.x_train).all() and np.isfinite(problem.x_test).all()
