"""Intervals in words."""

import numpy as np
import torch

from tailwise.calibration.conformal import fit_conformal
from tailwise.calibration.interval_texts import too_few
from tailwise.calibration.widening import REGIONS
from tailwise.distributions.members import Normal
from tailwise.labels.bins import LabelBins

BINS = LabelBins.from_labels(np.repeat([0, 1, 2], [300, 50, 5]))  # many, medium, few


def standard(n, **kwargs):
    return Normal(torch.zeros(n, dtype=torch.float64), 1.0, **kwargs)


def test_explain_of_global_limits():
    text = fit_conformal(standard(39), np.arange(-19.0, 20.0), BINS).explain(0.9)
    assert text.splitlines() == [
        "Conformal intervals at 0.9 from 39 held-out rows, the same for all rows.",
        "  prediction -18 to +18 spreads",
        "Promise: at least 0.9 of new labels, on average over all rows, if new rows come from the same "
        "distribution as the held-out rows.",
        "No method can promise coverage given the true label.",
    ]


def test_too_few_rows_in_words():
    assert too_few(8, 0.9) == "0.9 intervals take 9 held-out rows, and there are 8."
    assert too_few(0, 0.5) == "0.5 intervals take 1 held-out row, and there are 0."


def test_explain_says_which_limits_are_in_force():
    rng = np.random.default_rng(12)
    at = rng.choice([0.0, 1.0, 2.0], p=[0.8, 0.17, 0.03], size=400)
    prediction, y = Normal(torch.from_numpy(at), 1.0), at + rng.normal(size=at.size)
    intervals = fit_conformal(prediction, y, BINS, mode="region", weights="balanced")
    text = intervals.explain(0.9)
    rows = {r: intervals.tables[r].n for r in REGIONS}
    assert "from 400 held-out rows, by predicted region" in text
    assert f"({rows['many']} held-out rows, 99% its own limits, the rest the overall ones)" in text
    assert f"({rows['few']} held-out rows, {intervals.share_of_own('few'):.0%} its own limits" in text
    assert "there is no exact promise" in text
    assert "No method can promise coverage given the true label" in text
    assert "by the rarity of their labels" in text
