"""Bounds of the label in every prediction of `TailRegressor`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailwise import TailRegressor
from tests.estimator.small_tables import Array, quick, table


def positive(rows: int = 200) -> tuple[Array, Array]:
    """Labels of 0 and more, many of them near 0."""
    x, _ = table(rows)
    return x, np.exp(1.5 * x[:, 0])


@pytest.fixture(scope="module")
def bounded() -> TailRegressor:
    return quick(method="vir", bounds=(0, None), emphasis=0.4).fit(*positive())


def outputs(model: TailRegressor, x: Array, **asked: Any) -> Array:
    mean = model.predict(x, **asked)
    return np.c_[mean, model.predict_quantiles(x, [0.01, 0.9], **asked), model.predict_interval(x, **asked)]


def test_no_prediction_leaves_the_bounds(bounded: TailRegressor) -> None:
    x, y = positive(400)
    for asked in ({}, {"emphasis": 0.0}, {"emphasis": 1.0}, {"label_prior": y}):
        found = outputs(bounded, 3 * x, **asked)
        assert found.min() >= 0 and np.isfinite(found).all()
    free = outputs(quick(method="vir", emphasis=0.4).fit(*positive()), 3 * x)
    assert free.min() < 0  # so there was something to bound


def test_each_target_has_its_own_bounds() -> None:
    x, y = positive()
    both = np.c_[y, -y]
    model = quick(bounds=[(0, None), "observed"]).fit(x, both)
    ends = model.predict_interval(4 * x)
    assert ends[:, 0].min() >= 0 and ends[:, 1].max() <= (-y).max()
    assert quick(bounds=(-1e6, None)).fit(x, both).calibrators_[1].labels.bounds.low == -1e6
    with pytest.raises(ValueError, match="bounds has 3 entries for 2 targets"):
        quick(bounds=[(0, None), None, None]).fit(x, both)
    with pytest.raises(ValueError, match="row 0, below the bound 0"):
        quick(bounds=(0, None)).fit(x, both)


def test_whole_labels_stay_whole(tmp_path: Path) -> None:
    x, y = positive(300)
    y = np.floor(y).clip(0, 9)
    model, free = (quick(method="vir", keep_values=keep).fit(x, y) for keep in (True, False))
    ends, wide = model.predict_interval(x), free.predict_interval(x)
    assert (ends % 1 == 0).all() and not (wide % 1 == 0).all()
    assert (model.predict_quantiles(x, [0.1, 0.9]) % 1 == 0).all()
    covered = [((y >= e[:, 0]) & (y <= e[:, 1])).mean() for e in (ends, wide)]
    assert covered[0] >= covered[1] and (ends[:, 1] - ends[:, 0]).mean() < (wide[:, 1] - wide[:, 0]).mean()
    again = TailRegressor.load(model.save(tmp_path / "m.tailwise"))
    np.testing.assert_array_equal(again.predict_interval(x), ends)
    assert (model.recalibrate(x, y).predict_interval(x) % 1 == 0).all()
