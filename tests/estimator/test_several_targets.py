"""Several targets at once: shapes, names, numbers of targets, bases and label priors for each."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tailwise import TailRegressor
from tests.estimator.small_tables import quick, table


def test_several_targets() -> None:
    x, y = table(300)
    both = np.c_[y, 1000 * x[:, 1] - 5]
    model = quick(epochs=1).fit(x, both)
    mean, std = model.predict(x, return_std=True)
    assert mean.shape == std.shape == both.shape
    assert model.predict_interval(x[:7]).shape == (7, 2, 2)
    assert model.predict_quantiles(x[:7], [0.1, 0.9]).shape == (7, 2, 2)
    assert len(model.bins_) == 2 and len(model.predict_distribution(x[:3])) == 2
    assert {"prediction_0", "upper_1", "region_1"} <= set(model.predict_frame(x[:3]).columns)
    assert set(model.score_by_region(x, both)["target"]) == {0, 1}
    named = quick(epochs=1).fit(x, pd.DataFrame(both, columns=["price", "size"]))
    assert list(named.score_by_region(x, both)["target"].unique()) == ["price", "size"]


def test_as_many_targets_as_at_fit() -> None:
    x, y = table(100)
    two = np.c_[y, y]
    one_target, two_targets = (quick(epochs=1).fit(x, labels) for labels in (y, two))
    with pytest.raises(ValueError, match="y has 2 targets, but the model was fitted with 1"):
        one_target.score_by_region(x, two)
    for wrong in (y, np.c_[y, y, y]):
        with pytest.raises(ValueError, match=r"y has \d targets, but the model was fitted with 2"):
            two_targets.score_by_region(x, wrong)
        with pytest.raises(ValueError, match=r"y has \d targets, but the model was fitted with 2"):
            quick(epochs=1).fit(x, two, eval_set=(x, wrong))
    with pytest.raises(ValueError, match="target name 'a' occurs twice"):
        quick(epochs=1).fit(x, pd.DataFrame(two, columns=["a", "a"]))


def test_a_base_for_each_target(boosted: TailRegressor, few_trees: None) -> None:
    x, y = table()
    both = quick(base="catboost", folds=2).fit(x, np.c_[y, 100 - 3 * y])
    assert both.base_ is not None and len(both.base_) == 2
    one, two = (base.predict(x) for base in both.base_)
    np.testing.assert_allclose(one, boosted.base_[0].predict(x))  # the other target changes nothing
    assert np.corrcoef(one, two)[0, 1] < -0.9 and abs(two.mean() - (100 - 3 * y).mean()) < y.std()
    frame = both.predict_frame(x)
    assert np.corrcoef(frame["prediction_0"], y)[0, 1] > 0.7
    assert np.corrcoef(frame["prediction_1"], 100 - 3 * y)[0, 1] > 0.7
    assert isinstance(both.emphasis_, list) and len(both.emphasis_) == 2


def test_a_label_prior_for_each_target() -> None:
    x, y = table()
    model = quick(emphasis=0.0, method="vir").fit(x, np.c_[y, -y])
    plain = model.predict(x)
    high = y[y > np.median(y)]
    moved = model.predict(x, label_prior=[high, None])
    assert (moved[:, 0] > plain[:, 0]).mean() > 0.9
    np.testing.assert_array_equal(moved[:, 1], plain[:, 1])
    texts = [model.explain_intervals(target=t, label_prior=[high, None]) for t in (0, 1)]
    assert texts[0] != model.explain_intervals(target=0) and texts[1] == model.explain_intervals(target=1)
    for wrong in (high, [high], lambda label: label):
        with pytest.raises(ValueError, match="label_prior must be a list with one for each of the 2 targets"):
            model.predict(x, label_prior=wrong)
    assert model.predict(x, emphasis=0.5).shape == (len(x), 2)
