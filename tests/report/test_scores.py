"""Predictions of new rows, and figures by region and along the label."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from tailwise import TailRegressor
from tailwise.calibration.calibration import Labels
from tailwise.distributions.members import Normal
from tailwise.labels.bins import LabelBins
from tailwise.labels.prior import rarest
from tailwise.report.scores import LEVELS, Baseline, Scores, Seen
from tests.report.made import some

Rows = tuple[pd.DataFrame, np.ndarray]


@pytest.fixture
def by_hand() -> Scores:
    """Six rows of two bins: five common labels, and one rare label whose interval misses it."""
    y = np.array([0.0, 0, 0, 0, 0, 4])
    mean = torch.tensor([1.0, -1, 1, -1, 1, 2], dtype=torch.float64)
    distribution = Normal(mean, torch.tensor([1.0, 2, 3, 4, 5, 6], dtype=torch.float64))
    train = np.repeat([0.0, 4.0], [200, 3])
    ends = dict.fromkeys(LEVELS, (mean.numpy() - 1, mean.numpy() + 1.5))
    return Scores(
        "made", y, Labels(LabelBins.from_labels(train), quantiles=train), Baseline(distribution, ends)
    )


def test_figures_by_region_by_hand(by_hand: Scores) -> None:
    table = by_hand.by_region
    assert table["n"].to_dict() == {"all": 6, "many": 5, "medium": 0, "few": 1}
    assert table.loc["many", ["mae", "bias", "coverage", "width"]].tolist() == [1.0, 0.2, 1.0, 2.5]
    assert table.loc[["many", "few"], "interval_score"].tolist() == pytest.approx([2.5, 12.5])
    assert table.loc["few", ["mae", "bias", "coverage", "width"]].tolist() == [2.0, -2.0, 0.0, 2.5]
    assert table["share"].tolist() == pytest.approx([1, 5 / 6, 0, 1 / 6])
    assert table.loc["medium", ["mae", "bias", "coverage", "width"]].isna().all()


def test_points_along_the_label_pool_whole_bins(by_hand: Scores) -> None:
    curve = by_hand.along_label(min_rows=1)
    assert curve[["center", "n", "mae"]].to_numpy().tolist() == [[0, 5, 1], [4, 1, 2]]
    pooled = by_hand.along_label(min_rows=2)  # the last row alone is too few
    assert pooled["n"].tolist() == [6] and pooled["mae"].tolist() == pytest.approx([7 / 6])


def test_sparsification_is_thinned_and_ends_before_the_last_rows(vir: Scores) -> None:
    curves = vir.sparsification(points=20)
    assert curves.error.size == curves.oracle.size == 20
    assert curves.removed[0] == 0 and curves.error[0] == pytest.approx(vir.error.mean())
    assert curves.removed[-1] == pytest.approx(1 - 10 / 300)


def test_scores_agree_with_the_estimators_own(
    models: dict[str, TailRegressor], vir: Scores, new_rows: Rows
) -> None:
    X, y = new_rows
    own = models["vir"].score_by_region(X, y).set_index("region")
    for name in ("mae", "rmse", "nll", "coverage", "width"):
        np.testing.assert_allclose(vir.by_region[name], own[name], rtol=1e-5, equal_nan=True)
    np.testing.assert_allclose(np.stack([vir.lower, vir.upper], 1), models["vir"].predict_interval(X, 0.9))
    assert vir.reliability()[LEVELS.index(0.9)] == pytest.approx(vir.inside.mean())


def test_one_of_several_targets_is_chosen(new_rows: Rows) -> None:
    X, y = new_rows
    model = TailRegressor(epochs=1, random_state=0).fit(X, np.stack([y, 100 - y], 1))
    with pytest.raises(ValueError, match="the model has 2 targets: choose one of them"):
        Seen(model, X).scores(y)
    second = Seen(model, X).scores(100 - y, target=1)
    np.testing.assert_allclose(second.mean, model.predict(X)[:, 1], rtol=1e-6)
    assert second.bins.edges[-1] > 99


def test_rows_are_encoded_and_predicted_once(
    models: dict[str, TailRegressor], new_rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = Seen(models["vir"], new_rows[0])
    monkeypatch.setattr(type(rows.model), "encode", None)
    at = [rows.scores(new_rows[1], emphasis=emphasis) for emphasis in (0.0, 1.0)]
    assert (at[0].mean != at[1].mean).any()


# -- the dial ------------------------------------------------------------------------------------


def test_errors_are_those_of_predictions_at_every_emphasis(
    models: dict[str, TailRegressor], vir: Scores, new_rows: Rows
) -> None:
    dial = vir.dial
    assert dial is not None and vir.calibration is not None
    x, y = new_rows
    rare = rarest(y, vir.calibration.labels.density)
    assert rare.sum() == 45  # 15% of 300
    overall, of_rare = dial.curve
    for k in (0, 10):
        setting = dial.settings[k]
        error = np.abs(models["vir"].predict(x, emphasis=setting) - y)
        assert (overall[k], of_rare[k]) == pytest.approx((error.mean(), error[rare].mean()))
        lower, upper = models["vir"].predict_interval(x, emphasis=setting).T
        few, figures = vir.mask("few"), dial.by_region()["few"]
        assert figures["mae"][k] == pytest.approx(error[few].mean())
        assert figures["coverage"][k] == ((lower <= y) & (y <= upper))[few].mean()
        assert figures["width"][k] == pytest.approx((upper - lower)[few].mean())
    assert dial.point(vir) == (pytest.approx(vir.error.mean()), pytest.approx(vir.error[rare].mean()))


def test_no_dial_without_calibration_or_rows(vir: Scores) -> None:
    assert some(vir, np.arange(300)).dial is None
    assert replace(vir, y=vir.y[:10]).dial is None
