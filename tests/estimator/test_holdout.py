"""Held-out rows: by label, by group, by time; no model is judged by rows that it saw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailwise.labels.bins import LabelBins
from tailwise.model import fit as fitting
from tailwise.model import split as holdout
from tailwise.model.base import deal_folds
from tailwise.model.split import (
    Split,
    deal_group_folds,
    group_codes,
    latest_rows,
)
from tests.estimator.small_tables import quick, table


def test_groups_stay_together_and_labels_are_spread() -> None:
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 60, 600)
    labels = np.where(groups < 10, 5.0, 0.0) + rng.integers(0, 2, 600)
    fold = deal_group_folds(labels, groups, seed=0)
    assert all(len(np.unique(fold[groups == g])) == 1 for g in range(60))
    share = np.bincount(fold) / 600
    assert share.min() > 0.1
    rare = np.bincount(fold[labels >= 5], minlength=5)
    assert rare.min() > 0  # ten groups with rare labels, two per fold
    assert not np.array_equal(fold, deal_group_folds(labels, groups, seed=1))


@pytest.mark.parametrize("folds", ["auto", 3, 1])
def test_no_group_is_on_both_sides(folds: Any) -> None:
    labels, groups = table(400)[1], np.arange(400) % 40
    parts = Split.deal(labels, 0, folds=folds, share=0.2, groups=groups).parts
    assert len(parts) == {"auto": 5}.get(folds, folds)
    for train, rest in parts:
        assert len(train) + len(rest) == 400 and len(rest) > 50
        assert not set(groups[train]) & set(groups[rest])


def test_fewer_groups_than_folds() -> None:
    labels, groups = table(100)[1], np.arange(100) % 3
    assert len(Split.deal(labels, 0, folds="auto", share=0.2, groups=groups).parts) == 1
    with pytest.raises(ValueError, match="4 folds need at least 4 groups, got 3: set folds to 3"):
        Split.deal(labels, 0, folds=4, share=0.2, groups=groups)


def test_groups_that_cannot_be_meant() -> None:
    assert group_codes(["b", "a", "b"], 3).tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="groups has 2 values for 3 rows"):
        group_codes([1, 2], 3)
    with pytest.raises(ValueError, match="groups is missing in row 1"):
        group_codes(["a", None, "b"], 3)
    with pytest.raises(ValueError, match="all rows are in one group"):
        group_codes([1, 1], 2)


@pytest.mark.parametrize("kind", ["numbers", "dates", "texts"])
def test_the_latest_rows_are_held_out_and_times_stay_together(kind: str) -> None:
    day = np.random.default_rng(0).permutation(np.repeat(np.arange(50), 2))
    dates = pd.Timestamp("2024-01-01") + pd.to_timedelta(day, unit="D")
    time: Any = {"numbers": day, "dates": pd.Series(dates), "texts": [str(d) for d in dates]}[kind]
    early, late = latest_rows(time, 100, 0.15)
    assert len(late) == 16  # 15 rows would split a day
    assert day[early].max() < day[late].min()


def test_times_that_cannot_be_meant() -> None:
    early, late = latest_rows([0] * 90 + [1] * 10, 100, 0.2)
    assert len(early) == 90 and len(late) == 10
    for time, words in (
        ([1, 2], "time has 2 values for 3 rows"),
        ([1, None, 2], "time is missing in row 1"),
        ([1, 1, 1], "all rows have the same time"),
        (["2024-01-31", "soon", "then"], "numbers or dates such as 2024-01-31, and row 1 is 'soon'"),
    ):
        with pytest.raises(ValueError, match=words):
            latest_rows(time, 3, 0.2)


def test_fit_by_groups_and_by_time() -> None:
    x, y = table(200)
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(shop=np.arange(200) % 20, day=np.arange(200))
    model = quick(folds=2).fit(frame, y, groups="shop")
    assert len(model.networks_) == 2 and model.model_.record.held_out
    late = quick().fit(frame, y, time=frame["day"])
    np.testing.assert_array_equal(np.sort(late.calibrators_[0].held.labels), np.sort(y[160:]))
    assert int(late.bins_.counts.sum()) == 160
    with pytest.raises(ValueError, match="unknown column of groups 'shp'; did you mean 'shop'"):
        quick().fit(frame, y, groups="shp")
    with pytest.raises(ValueError, match="time='day' names a column, but X has no names"):
        quick().fit(x, y, time="day")
    with pytest.raises(ValueError, match="time cannot be used with eval_set"):
        quick().fit(frame, y, time="day", eval_set=(frame, y))
    with pytest.raises(ValueError, match=r"sample_weight\.shape"):
        quick().fit(frame, y, time="day", sample_weight=np.ones(len(y) - 1))


def test_a_base_does_not_see_the_group_it_predicts(few_trees: None) -> None:
    """Labels are a number per group, which a base that saw the group would know."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 5)
    x, y = groups[:, None] + 0.0, rng.normal(size=40)[groups]
    model = quick(base="hist-gradient-boosting", folds=1).fit(x, y, groups=groups)
    assert model.base_ is not None and model.base_[0].spread > 0.7 * y.std()


@pytest.mark.parametrize("folds", [2, 5])
def test_folds_are_dealt_evenly_over_label_bins(folds: int) -> None:
    _, y = table(230)
    fold = deal_folds(y, 3, folds)
    np.testing.assert_array_equal(fold, deal_folds(y, 3, folds))
    assert not np.array_equal(fold, deal_folds(y, 4, folds))
    bins = LabelBins.from_labels(y).index(y)
    for chosen in [np.ones(len(y), bool), *(bins == b for b in np.unique(bins))]:
        counts = np.bincount(fold[chosen], minlength=folds)
        assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize(("rows", "networks"), [(39, 1), (40, 5), (61, 1)])
def test_folds_by_the_number_of_rows(rows: int, networks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdout, "MAX_FOLDED_ROWS", 60)
    assert len(quick(folds="auto", epochs=1).fit(*table(rows)).networks_) == networks


def test_a_network_trains_on_all_rows_but_its_own_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = table(60)
    parts = []
    train = fitting.train

    def watched(network: Any, training: Any, valid: Any, *args: Any, **kwargs: Any) -> Any:
        parts.append((set(training.y.tolist()), set(valid.y.tolist())))
        return train(network, training, valid, *args, **kwargs)

    monkeypatch.setattr(fitting, "train", watched)
    quick(folds=3, epochs=1).fit(x, y)
    assert all(training | held == set(y) and not training & held for training, held in parts)
    assert set.union(*(held for _, held in parts)) == set(y) and len(parts) == 3
