"""Files written before limits were shrunk keep their intervals."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from tailwise.core.distributions import Normal
from tailwise.core.labels import LabelBins
from tailwise.uncertainty.calibration import Calibrator
from tailwise.uncertainty.conformal import ConformalIntervals, fit_conformal
from tailwise.uncertainty.former_intervals import FormerIntervals, read_intervals
from tailwise.uncertainty.score_table import ScoreTable

BINS = LabelBins.from_labels(np.repeat([0, 1, 2], [300, 50, 5]))  # many, medium, few
SCORES = {"many": np.linspace(-2, 2, 200), "few": np.linspace(-9, 9, 10)}


def former(**changes: object) -> FormerIntervals:
    everything = np.concatenate(list(SCORES.values()))
    tables = {"all": ScoreTable.from_scores(everything, np.ones(210))}
    tables |= {name: ScoreTable.from_scores(own) for name, own in SCORES.items()}
    fields = {"mode": "region", "bins": BINS, "tables": tables, "weighting": "balanced"} | changes
    return FormerIntervals(**fields)  # type: ignore[arg-type]


def test_a_region_with_few_rows_has_the_wider_of_its_own_and_the_global_limits() -> None:
    limits, tables = former().limits(0.9), former().tables
    assert limits["many"] == tables["many"].limits(0.9)
    assert limits["medium"] == tables["all"].limits(0.9)
    assert limits["few"] == (-9.0, 9.0)
    assert former(mode="global").limits(0.9)["few"] == limits["medium"]
    with pytest.raises(ValueError, match="between 0 and 1"):
        former().limits(90)


def test_a_state_of_an_earlier_version_is_read_and_written_as_it_was() -> None:
    state = json.loads(json.dumps(former().to_dict()))
    assert "groups" not in state
    back = read_intervals(state)
    assert isinstance(back, FormerIntervals)
    assert back.to_dict() == former().to_dict()
    assert "Intervals of an earlier version at 0.9 from 210 held-out rows" in back.explain(0.9)
    now = fit_conformal(Normal(torch.zeros(19), 1.0), np.arange(19.0), BINS)
    assert type(read_intervals(now.to_dict())) is ConformalIntervals


def test_the_prediction_of_all_networks_has_the_interval() -> None:
    prediction = Normal(torch.tensor([0.0, 2.0], dtype=torch.float64), 4.0)
    networks = [Normal(prediction.mean + shift, 1.0) for shift in (-1, 0, 1)]
    calibrator = Calibrator(BINS, None, former())
    low, high = calibrator.interval(prediction, 0.9, networks)
    limits = former().limits(0.9)
    np.testing.assert_allclose(low, [2 * limits["many"][0], 2 - 18])
    np.testing.assert_allclose(high, [2 * limits["many"][1], 2 + 18])
    # No warning: intervals of earlier versions end at the largest error seen.
    assert calibrator.interval(prediction, 0.999)[1].isfinite().all()
