"""Networks by folds: every row is held out once, and no model is judged by rows that it saw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tailwise.labels.bins import LabelBins
from tailwise.model import fit as fitting
from tailwise.model import split as holdout
from tailwise.model.base import deal_folds
from tests.estimator.small_tables import quick, table


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
