"""Intervals as plain numbers: what is written is read again, and what is damaged is named."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch

from tailwise.core.distributions import Normal
from tailwise.core.labels import LabelBins
from tailwise.uncertainty.conformal import ConformalIntervals, fit_conformal

BINS = LabelBins.from_labels(np.repeat([0, 1, 2], [300, 50, 5]))  # many, medium, few


def fitted(**kwargs):
    rng = np.random.default_rng(12)
    at = rng.choice([0.0, 1.0, 2.0], p=[0.8, 0.17, 0.03], size=kwargs.pop("n", 400))
    prediction = Normal(torch.from_numpy(at), torch.from_numpy(rng.uniform(0.5, 2, at.size)))
    return fit_conformal(prediction, at + rng.normal(size=at.size), BINS, **kwargs), prediction


@pytest.mark.parametrize(
    ("mode", "weights", "n"), [*itertools.product(["global", "region"], [None, "balanced"], [400, 9000])]
)
def test_json_round_trip(mode, weights, n):
    intervals, prediction = fitted(mode=mode, weights=weights, n=n)
    text = json.dumps(intervals.to_dict(), allow_nan=False)
    assert len(text) < 300_000
    back = ConformalIntervals.from_dict(json.loads(text))
    assert back.to_dict() == intervals.to_dict()
    assert back.explain(0.8) == intervals.explain(0.8)
    for coverage in (0.5, 0.9, 0.99):
        for a, b in zip(
            back.interval(prediction, coverage), intervals.interval(prediction, coverage), strict=True
        ):
            assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("edges"), "lacks edges"),
        (lambda s: s.update(egdes=[1]), "did you mean 'edges'"),
        (lambda s: s.update(mode="local"), "unknown mode"),
        (lambda s: s.update(counts=[1]), "1 bins need 2 edges"),
        (lambda s: s["tables"].pop("all"), "lacks all"),
        (lambda s: s["tables"].update(rare=s["tables"]["all"]), "unknown key 'rare'"),
        (lambda s: s["tables"]["all"].update(values=[1.0]), "scores must be ascending"),
        (lambda s: s["tables"]["all"]["values"].reverse(), "scores must be ascending"),
        (lambda s: s["tables"]["all"]["values"].__setitem__(0, math.nan), "scores must be finite"),
        (lambda s: s["groups"][0].update(weights=[1.0]), "need as many regions and weights"),
        (lambda s: s["groups"][0].pop("slack"), "a conformal state lacks slack"),
        (lambda s: s.update(mean_sides=[1.0]), r"the shape \(3, 2\)"),
    ],
)
def test_a_damaged_state_is_named(change, message):
    state = fitted(weights="balanced")[0].to_dict()
    change(state)
    with pytest.raises(ValueError, match=message):
        ConformalIntervals.from_dict(state)
