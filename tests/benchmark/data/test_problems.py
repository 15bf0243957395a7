"""From raw tables to arrays: splits, limits, and encodings from the training part alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

from tailwise.benchmark import Problem, Source
from tailwise.data import pooled_split
from tailwise.labels.bins import LabelBins


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
