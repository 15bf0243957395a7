"""Predictions of new rows, and figures by region and along the label."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import t, ttest_rel

from tailwise import TailRegressor
from tailwise.distributions.members import Normal
from tailwise.labels.bins import LabelBins
from tailwise.report.scoring import (
    LEVELS,
    Scored,
    paired_difference,
    rmse_difference,
    score_model,
    sorted_regions,
)

Rows = tuple[pd.DataFrame, np.ndarray]


@pytest.fixture
def by_hand() -> Scored:
    """Six rows of two bins: five common labels, and one rare label whose interval misses it."""
    y = np.array([0.0, 0, 0, 0, 0, 4])
    mean = torch.tensor([1.0, -1, 1, -1, 1, 2], dtype=torch.float64)
    return Scored(
        title="made",
        y=y,
        distribution=Normal(mean, torch.tensor([1.0, 2, 3, 4, 5, 6], dtype=torch.float64)),
        uncalibrated=Normal(mean, 1e-12),
        bins=LabelBins.from_labels(np.repeat([0.0, 4.0], [200, 3])),
        lower=mean.numpy() - 1,
        upper=mean.numpy() + 1.5,
        covered=dict.fromkeys(LEVELS, y == 0),
    )


def test_figures_by_region_by_hand(by_hand: Scored) -> None:
    table = by_hand.by_region()
    assert table["n"].to_dict() == {"all": 6, "many": 5, "medium": 0, "few": 1}
    assert table.loc["many", ["mae", "bias", "coverage", "width"]].tolist() == [1.0, 0.2, 1.0, 2.5]
    assert table.loc["few", ["mae", "bias", "coverage", "width"]].tolist() == [2.0, -2.0, 0.0, 2.5]
    assert table["share"].tolist() == pytest.approx([1, 5 / 6, 0, 1 / 6])
    assert table.loc["medium", ["mae", "bias", "coverage", "width"]].isna().all()


def test_reliability_by_region_and_of_the_distribution(by_hand: Scored) -> None:
    assert by_hand.reliability().tolist() == pytest.approx([5 / 6] * len(LEVELS))
    assert by_hand.reliability("few").tolist() == [0.0] * len(LEVELS)
    assert np.isnan(by_hand.reliability("medium")).all()
    assert by_hand.distribution_reliability(calibrated=False).tolist() == [0.0] * len(LEVELS)
    assert by_hand.distribution_reliability(calibrated=True)[-1] == 1.0


def test_points_along_the_label_pool_whole_bins(by_hand: Scored) -> None:
    curve = by_hand.along_label(min_rows=1)
    assert curve[["center", "n", "mae"]].to_numpy().tolist() == [[0, 5, 1], [4, 1, 2]]
    assert curve["std"].tolist() == pytest.approx([math.sqrt(3), math.sqrt(6)])
    assert curve["epistemic_std"].tolist() == [0, 0]
    pooled = by_hand.along_label(min_rows=2)  # the last row alone is too few
    assert pooled["n"].tolist() == [6] and pooled["mae"].tolist() == pytest.approx([7 / 6])


def test_points_along_the_label_cover_every_row(vir: Scored) -> None:
    curve = vir.along_label(min_rows=7)
    assert curve["n"].min() >= 7 and curve["n"].sum() == 300
    assert np.average(curve["mae"], weights=curve["n"]) == pytest.approx(vir.error.mean())
    assert curve["center"].is_monotonic_increasing


def test_sparsification_is_thinned_and_ends_before_the_last_rows(vir: Scored) -> None:
    curves = vir.sparsification(points=20)
    assert curves.error.size == curves.oracle.size == 20
    assert curves.removed[0] == 0 and curves.error[0] == pytest.approx(vir.error.mean())
    assert curves.removed[-1] == pytest.approx(1 - 10 / 300)


def test_scores_agree_with_the_estimators_own(
    models: dict[str, TailRegressor], vir: Scored, new_rows: Rows
) -> None:
    X, y = new_rows
    own = models["vir"].score_by_region(X, y).set_index("region")
    for name in ("mae", "rmse", "nll", "coverage", "width"):
        np.testing.assert_allclose(vir.by_region()[name], own[name], rtol=1e-5, equal_nan=True)
    np.testing.assert_allclose(np.stack([vir.lower, vir.upper], 1), models["vir"].predict_interval(X, 0.9))
    assert vir.reliability()[LEVELS.index(0.9)] == pytest.approx(vir.inside.mean())


def test_calibration_can_be_undone(models: dict[str, TailRegressor], vir: Scored, new_rows: Rows) -> None:
    scaling = models["vir"].calibrators_[0].scaling
    assert scaling is not None
    again = scaling.apply(vir.uncalibrated)
    torch.testing.assert_close(again.variance, vir.distribution.variance)
    plain = {"base": None, "folds": 1, "emphasis": 0.0, "calibrate": False, "conformal": None}
    x, y = new_rows
    y = y + x["b"].to_numpy() / 9  # no longer whole, so that ends of intervals are not either
    bare = TailRegressor(epochs=1, random_state=0, **plain).fit(x, y)
    scored = score_model(bare, x, y, coverage=0.5)
    assert scored.uncalibrated is scored.distribution  # nothing was scaled
    low, high = (end.double().numpy() for end in scored.distribution.interval(0.5))
    np.testing.assert_allclose([scored.lower, scored.upper], [low, high])


def test_one_of_several_targets_is_chosen(new_rows: Rows) -> None:
    X, y = new_rows
    model = TailRegressor(epochs=1, random_state=0).fit(X, np.stack([y, 100 - y], 1))
    with pytest.raises(ValueError, match="the model has 2 targets: choose one of them"):
        score_model(model, X, y)
    second = score_model(model, X, 100 - y, target=1)
    np.testing.assert_allclose(second.mean, model.predict(X)[:, 1], rtol=1e-6)
    assert second.bins.edges[-1] > 99


def test_pairs_of_errors_are_compared_row_by_row() -> None:
    rows = np.array([True, True, True, False])
    change = paired_difference(np.array([1.0, 2.0, 3.0, 99.0]), np.array([2.0, 3.0, 5.0, 0.0]), rows)
    assert (change.ours, change.n) == (2.0, 3)
    assert change.value == pytest.approx(-4 / 3)
    textbook = ttest_rel([1.0, 2.0, 3.0], [2.0, 3.0, 5.0])
    assert change.value + change.half == pytest.approx(textbook.confidence_interval(0.95).high)
    assert change.undecided and textbook.pvalue > 0.05  # three rows are few
    many = paired_difference(np.tile([1.0, 2.0, 3.0], 9), np.tile([2.0, 3.0, 5.0], 9), np.ones(27, bool))
    assert many.better
    one = paired_difference(np.array([1.0]), np.array([9.0]), np.ones(1, bool))
    assert one.value == -8 and one.undecided


def test_root_mean_squares_are_compared_as_a_bootstrap_over_rows_would() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = np.abs(rng.normal(0, 1, 400)), np.abs(rng.normal(0, 1.2, 400))
    found = rmse_difference(ours, theirs, np.ones(400, bool), confidence=0.99)
    assert found.ours == pytest.approx(math.sqrt((ours**2).mean()))
    drawn = rng.integers(0, 400, size=(4000, 400))
    spread = (np.sqrt((ours[drawn] ** 2).mean(1)) - np.sqrt((theirs[drawn] ** 2).mean(1))).std()
    assert found.half == pytest.approx(t.ppf(0.995, 399) * spread, rel=0.05)
    assert found.better and found.bound == pytest.approx((abs(found.value) + found.half) / found.theirs)
    exact = rmse_difference(np.zeros(3), np.zeros(3), np.ones(3, bool))
    assert (exact.value, exact.half, exact.bound) == (0, 0, math.inf)
    assert rmse_difference(ours, theirs, np.zeros(400, bool)).n == 0


def test_labels_are_whole_where_all_of_them_are(by_hand: Scored) -> None:
    assert by_hand.label(3.6) == "4" and by_hand.label(12345.0) == "12,345"
    assert replace(by_hand, y=by_hand.y + 0.5).label(3.6) == "3.6"


def test_no_row_and_no_spread() -> None:
    empty = paired_difference(np.ones(2), np.ones(2), np.zeros(2, bool))
    assert empty.n == 0 and math.isnan(empty.value) and empty.undecided
    same = paired_difference(np.ones(5), np.ones(5), np.ones(5, bool))
    assert (same.value, same.half) == (0, 0) and same.undecided
    shifted = paired_difference(np.full(5, 3.0), np.ones(5), np.ones(5, bool))
    assert (shifted.value, shifted.half) == (2, 0) and shifted.worse and not shifted.better


def test_regions_are_sorted_from_common_to_rare(by_hand: Scored) -> None:
    assert sorted_regions(["few", "many", "few"]) == ["many", "few"]
    assert sorted_regions(replace(by_hand, many=1000, few=10).region) == ["medium", "few"]
