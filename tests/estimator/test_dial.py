"""The dial between common and rare labels, and label priors, in every prediction."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tailwise import TailRegressor
from tests.estimator.small_tables import table


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
