"""Bounds of the label, the dial between common and rare labels, and label priors, in every prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

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


@pytest.fixture(params=["plain", "boosted"])
def model(request: pytest.FixtureRequest) -> TailRegressor:
    fitted: TailRegressor = request.getfixturevalue(request.param)
    return fitted


def test_emphasis_0_is_the_identity(model: TailRegressor) -> None:
    x, _ = table(50)
    (raw,) = model.model_.raw(model.model_.encode(x))
    (calibration,) = model.model_.at(0.0).targets
    expected = calibration.scaling.apply(raw.pooled)
    found = model.predict_distribution(x, emphasis=0.0)
    for name in ("mean", "variance"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=0, atol=0)
    ends = calibration(raw).interval(0.9)
    np.testing.assert_array_equal(model.predict_interval(x, emphasis=0.0), np.stack(ends, 1))


def test_an_even_prior_is_emphasis_1(model: TailRegressor) -> None:
    x, _ = table(50)
    even = model.predict(x, label_prior=lambda label: np.ones_like(label))
    np.testing.assert_allclose(even, model.predict(x, emphasis=1.0), rtol=1e-6)


def test_every_output_takes_the_dial(model: TailRegressor) -> None:
    x, y = table()
    for asked in ({"emphasis": 1.0}, {"label_prior": y[y > 2]}):
        mean, std = model.predict(x, return_std=True, **asked)
        frame = model.predict_frame(x, **asked)
        np.testing.assert_allclose(frame["prediction"], mean)
        np.testing.assert_allclose(frame["std"], std)
        np.testing.assert_allclose(frame[["lower", "upper"]], model.predict_interval(x, **asked))
        scores = model.score_by_region(x, y, **asked).set_index("region")
        assert scores.loc["all", "mae"] == pytest.approx(np.abs(mean - y).mean())
        assert model.explain_intervals(**asked) != model.explain_intervals(emphasis=0.0)


def test_what_is_wrong_with_a_dial_is_said(model: TailRegressor) -> None:
    x, y = table(20)
    for emphasis in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match="emphasis must lie between 0 and 1, got"):
            model.predict(x, emphasis=emphasis)
    with pytest.raises(ValueError, match="give emphasis or label_prior, not both"):
        model.predict(x, emphasis=0.5, label_prior=y)
    low, high = model.calibrators_[0].labels.density.edges[[0, -1]]
    for prior in (y + 1e6, ([1e6, 2e6], [1.0]), lambda label: 0 * label):
        with pytest.raises(ValueError, match=f"the label prior has no mass between {low:g} and {high:g}"):
            model.predict_interval(x, label_prior=prior)
    with pytest.raises(ValueError, match="finite and not negative"):
        model.predict(x, label_prior=lambda label: -label)
