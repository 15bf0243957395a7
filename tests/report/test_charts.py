"""Charts of a model in words: every sentence agrees with the figures."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from tailwise import TailRegressor
from tailwise.methods import get_method
from tailwise.report.baselines import Lineup
from tailwise.report.charts import ModelCharts
from tailwise.report.dial import dial_of
from tailwise.report.formatting import number, percent
from tailwise.report.scoring import LEVELS, Scored, score_model
from tailwise.report.svg import Chart

Rows = tuple[pd.DataFrame, np.ndarray]


@pytest.fixture(scope="module")
def charts(lineup: Lineup) -> dict[str, Chart]:
    made = ModelCharts(lineup, "rings", "vir", dial_of(lineup.ours))
    return {chart.title: chart for chart in [*made.main(), *made.details()]}


def alone(scored: Scored, method: str = "vir") -> ModelCharts:
    return ModelCharts(Lineup(scored), "rings", method)


def test_the_order_of_the_page(charts: dict[str, Chart]) -> None:
    assert list(charts) == [
        "Error along the label", "Predicted against true", "Do the intervals contain the label?",
        "How wide are the intervals?", "The dial between common and rare labels",
        "Does it know when it is wrong?", "Reliability", "Noise or lack of data?",
        "Calibration, before and after",
    ]  # fmt: skip


def test_the_dial_has_every_point(charts: dict[str, Chart], lineup: Lineup) -> None:
    chart, dial = charts["The dial between common and rare labels"], dial_of(lineup.ours)
    assert dial is not None and dial.text in chart.text
    for name, scored in [(f"in use: {dial.setting}", lineup.ours), *((s.title, s) for s in lineup.rivals)]:
        x, y = map(number, dial.point(scored))
        assert f"{name}: {x} and {y}" in chart.svg
    assert f"emphasis 1: {number(float(dial.curve[0][-1]))} and" in chart.svg
    assert alone(lineup.ours)._dial_curve() is None


def test_the_largest_error_is_named(charts: dict[str, Chart], vir: Scored) -> None:
    curve = vir.along_label()
    worst = curve.loc[curve["mae"].idxmax()]
    words = f"The error of VIR is largest near {vir.label(worst['center'])}: {number(worst['mae'])}."
    assert words in charts["Error along the label"].text
    assert "at least 5 test rows" in charts["Error along the label"].text


def test_bars_are_read_aloud_with_their_figures(charts: dict[str, Chart], lineup: Lineup) -> None:
    spoken = charts["Do the intervals contain the label?"].svg
    assert lineup.other is not None and lineup.booster is not None and lineup.constant is not None
    for scored in (lineup.ours, lineup.other, lineup.booster, lineup.constant):
        share = percent(scored.inside[scored.mask("few")].mean())
        assert f"{scored.title}: many " in spoken and f"few {share}" in spoken


def test_the_half_that_is_certain(charts: dict[str, Chart], vir: Scored) -> None:
    curve = vir.sparsification()
    half = number(float(np.interp(0.5, curve.removed, curve.error)))
    assert f"from {number(vir.error.mean())} to {half}." in charts["Does it know when it is wrong?"].text


def test_calibration_names_every_stage(charts: dict[str, Chart], vir: Scored) -> None:
    at = LEVELS.index(0.9)
    shares = [
        f"network alone {percent(vir.distribution_reliability(calibrated=False)[at])}",
        f"scaled on held-out rows {percent(vir.distribution_reliability(calibrated=True)[at])}",
        f"final intervals {percent(vir.reliability()[at])}",
    ]
    assert ", ".join(shares) in charts["Calibration, before and after"].text
    bare = alone(replace(vir, uncalibrated=vir.distribution))._calibration()
    assert "network alone" in bare.text and "scaled" not in bare.text + bare.svg


def test_parts_of_the_variance_only_where_the_method_predicts_both(
    charts: dict[str, Chart], vir: Scored, plain: Scored
) -> None:
    titles = [chart.title for chart in alone(plain, "vanilla").details()]
    assert titles == ["Reliability", "Calibration, before and after"]
    curve = vir.along_label()
    share = (curve["epistemic_std"] ** 2).mean() / (curve["std"] ** 2).mean()
    shown = "less than 1%" if share < 0.01 else percent(share)
    assert f"{shown} of the predicted variance is epistemic" in charts["Noise or lack of data?"].text


def test_a_sample_of_rows_is_called_so(charts: dict[str, Chart], vir: Scored, new_rows: Rows) -> None:
    assert "are shown" not in charts["Predicted against true"].text  # all 300 of them
    twice = replace(
        vir,
        y=np.tile(vir.y, 2),
        distribution=vir.distribution[np.tile(np.arange(300), 2)],
        lower=np.tile(vir.lower, 2),
        upper=np.tile(vir.upper, 2),
    )
    text = alone(twice)._predicted_vs_true().text
    assert "300 of 600 rows are shown, rare labels first." in text


def test_the_chart_along_the_label_says_where_it_ends(
    models: dict[str, TailRegressor], vir: Scored, new_rows: Rows
) -> None:
    X, y = new_rows
    near = score_model(models["vir"], X[y <= 5], y[y <= 5])
    text = alone(near)._error_by_label().text
    assert f"No test row is above {int(y[y <= 5].max())}; training labels reach about" in text
    assert "No test row is above 5" not in alone(vir)._error_by_label().text


def some(scored: Scored, rows: NDArray[np.int64]) -> Scored:
    """The scores of these rows."""
    return replace(
        scored, y=scored.y[rows], distribution=scored.distribution[rows],
        uncalibrated=scored.uncalibrated[rows], lower=scored.lower[rows], upper=scored.upper[rows],
    )  # fmt: skip


def test_few_rows_are_not_called_five(vir: Scored) -> None:
    few = some(vir, np.flatnonzero(vir.region == "many")[:3])
    assert "mean absolute error of the few test rows" in alone(few)._error_by_label().text


def test_a_curve_that_ends_before_the_half_says_where(vir: Scored) -> None:
    text = alone(some(vir, np.arange(16)))._sparsification().text
    assert text.startswith("Without the least certain 38% of the rows")


def test_the_histogram_counts_training_rows(vir: Scored) -> None:
    chart = alone(vir).histogram()
    few = int(vir.bins.counts[vir.bins.regions() == "few"].sum())
    assert f"{few:,} rows in few-shot bins." in chart.text


def test_weights_are_drawn_only_for_methods_that_use_them(vir: Scored) -> None:
    charts = alone(vir)
    assert charts.weights(None) is None
    drawn = charts.weights(get_method("vir").parts.make("weights", vir.bins))
    assert drawn is not None and "the average training row has weight 1" in drawn.text
