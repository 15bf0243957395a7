"""What the dial costs and gains, in figures and words."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tailwise import TailRegressor
from tailwise.labels.prior import rarest
from tailwise.report.dial import EMPHASES, Dial, dial_of
from tailwise.report.scoring import Scored, score_model

Rows = tuple[pd.DataFrame, np.ndarray]


def test_errors_are_those_of_predictions_at_every_emphasis(
    models: dict[str, TailRegressor], vir: Scored, new_rows: Rows
) -> None:
    dial = dial_of(vir)
    assert dial is not None and vir.calibration is not None
    x, y = new_rows
    rare = rarest(y, vir.calibration.labels.density)
    assert rare.sum() == 45  # 15% of 300
    overall, of_rare = dial.curve
    for k in (0, 5, 10):
        setting = dial.settings[k]
        error = np.abs(models["vir"].predict(x, emphasis=setting) - y)
        assert overall[k] == pytest.approx(error.mean())
        assert of_rare[k] == pytest.approx(error[rare].mean())
        lower, upper = models["vir"].predict_interval(x, emphasis=setting).T
        few, figures = vir.mask("few"), dial.by_region()["few"]
        assert figures["mae"][k] == pytest.approx(error[few].mean())
        assert figures["coverage"][k] == ((lower <= y) & (y <= upper))[few].mean()
        assert figures["width"][k] == pytest.approx((upper - lower)[few].mean())
    assert dial.point(vir) == (pytest.approx(vir.error.mean()), pytest.approx(vir.error[rare].mean()))


def test_the_curve_is_the_same_whatever_is_in_use(models: dict[str, TailRegressor], new_rows: Rows) -> None:
    dials = [dial_of(score_model(models["vir"], *new_rows, emphasis=t)) for t in (0.0, 0.4)]
    prior = score_model(models["vir"], *new_rows, label_prior=np.linspace(5, 12, 50))
    for dial in (*dials, dial_of(prior)):
        assert dial is not None and dial.settings == EMPHASES
        np.testing.assert_allclose(dial.errors, dials[0].errors)  # type: ignore[union-attr]
    assert [d.setting for d in (*dials, dial_of(prior)) if d is not None] == [
        "emphasis 0", "emphasis 0.4", "the label prior given",
    ]  # fmt: skip


def test_the_setting_in_use_is_among_the_settings(models: dict[str, TailRegressor], new_rows: Rows) -> None:
    used = score_model(models["vir"], *new_rows, emphasis=0.45)
    dial = dial_of(used)
    assert dial is not None and dial.settings == (*EMPHASES[:5], 0.45, *EMPHASES[5:])
    np.testing.assert_allclose(dial.errors[5], used.error)


def made(scored: Scored, rare: float, common: float, emphasis: float) -> Dial:
    """A dial by hand: at emphasis 0 the error is 4 for rare labels and 1 for the others."""
    mask = np.arange(scored.y.size) < 45
    assert scored.calibration is not None
    prior = replace(scored.calibration.prior, emphasis=emphasis)
    used = replace(scored, calibration=replace(scored.calibration, prior=prior))
    used.__dict__["error"] = np.where(mask, rare, common)  # a cached property
    errors = np.stack([np.where(mask, 4.0 - 2 * t, 1.0 + t) for t in EMPHASES])
    return Dial(used, EMPHASES, mask, errors, errors < 2, errors)


@pytest.mark.parametrize(
    ("rare", "common", "emphasis", "words"),
    [
        (3.0, 1.5, 0.5,
         "With emphasis 0.5, which is in use, the error for the rarest 15% of the labels is 25.0% lower (3 "
         "against 4) than at emphasis 0, and for the others 50.0% higher (1.5 against 1)."),
        (4.1, 0.9999, 0.1,
         "With emphasis 0.1, which is in use, the error for the rarest 15% of the labels is 2.5% higher (4.1 "
         "against 4) than at emphasis 0, and for the others less than 0.1% lower (0.9999 against 1)."),
        (4.0, 1.0, 0.0,
         "At emphasis 0, which is in use, labels are expected as in training. At emphasis 1 the error for "
         "the rarest 15% of the labels is 50.0% lower (2 against 4), and for the others 100.0% higher (2 "
         "against 1)."),
        (3.0, 1.5, np.nan, "With the label prior given, which is in use, the error for the rarest"),
    ],
)  # fmt: skip
def test_costs_and_gains_in_words(
    vir: Scored, rare: float, common: float, emphasis: float, words: str
) -> None:
    assert made(vir, rare, common, emphasis).text.startswith(words)


def test_no_dial_without_density_or_rows(vir: Scored) -> None:
    assert dial_of(replace(vir, calibration=None)) is None
    assert dial_of(replace(vir, y=vir.y[:10], distribution=vir.distribution[:10])) is None
