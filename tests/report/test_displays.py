"""Displays: what each one draws, and that it is what the model predicts."""

from collections.abc import Iterator
from dataclasses import replace

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from tailwise import TailRegressor
from tailwise.report import displays
from tailwise.report.displays import (
    DependenceDisplay,
    DialDisplay,
    ImportanceDisplay,
    LabelErrorDisplay,
    RegionDisplay,
    ReliabilityDisplay,
    ScoredDisplay,
    SparsificationDisplay,
)
from tailwise.report.scoring import LEVELS, Scored

Rows = tuple[pd.DataFrame, np.ndarray]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    matplotlib.use("Agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def test_a_display_draws_on_new_axes_or_on_given_ones(
    models: dict[str, TailRegressor], new_rows: Rows
) -> None:
    made = RegionDisplay.from_estimator(models["vir"], *new_rows, coverage=0.8, emphasis=0.1)
    assert made.figure_ is made.ax_.figure and made.scored.coverage == 0.8 and made.scored.emphasis == 0.1
    bars = [bar.get_height() for bar in made.ax_.patches]
    s = made.scored
    assert bars == pytest.approx([s.error[s.mask(r)].mean() for r in ("many", "medium", "few")])
    ax = Figure().subplots()
    assert made.plot(ax).ax_ is ax


@pytest.mark.parametrize("metric", ["coverage", "width", "nll"])
def test_metrics_by_region(vir: Scored, metric: str) -> None:
    drawn = RegionDisplay(vir, metric).plot(Figure().subplots())
    assert drawn.ax_.patches[0].get_height() == pytest.approx(vir.by_region().loc["many", metric])


@pytest.mark.parametrize(
    ("kind", "lines"),
    [(LabelErrorDisplay, 1), (ReliabilityDisplay, 5), (SparsificationDisplay, 2), (DialDisplay, 2)],
)
def test_curves(vir: Scored, kind: type[ScoredDisplay], lines: int) -> None:
    drawn = kind(vir).plot(Figure().subplots())
    assert len(drawn.ax_.lines) == lines
    if kind is ReliabilityDisplay:
        np.testing.assert_allclose(drawn.ax_.lines[1].get_ydata(), vir.reliability())
        np.testing.assert_allclose(drawn.ax_.lines[1].get_xdata(), LEVELS)


def test_importance_and_dependence(models: dict[str, TailRegressor], new_rows: Rows) -> None:
    bars = ImportanceDisplay.from_estimator(
        models["vir"], *new_rows, repeats=2, max_rows=60, most=2, ax=Figure().subplots()
    )
    names = [text.get_text() for text in bars.ax_.get_yticklabels()]
    assert names[0] == "a" and len(names) == 2 and bars.ax_.yaxis_inverted()
    assert bars.ax_.get_xlabel() == "increase of the mean absolute error if shuffled"
    curve = DependenceDisplay.from_estimator(
        models["vir"], new_rows[0], "a", points=4, max_rows=20, ax=Figure().subplots()
    )
    np.testing.assert_allclose(curve.ax_.lines[0].get_ydata(), curve.table["prediction"])
    texts = DependenceDisplay(curve.table.assign(value=["$p", "q", "r", "s"]), "kind").plot(
        Figure().subplots()
    )
    assert [text.get_text() for text in texts.ax_.get_xticklabels()] == [r"\$p", "q", "r", "s"]


def test_mistakes_are_named(vir: Scored) -> None:
    with pytest.raises(ValueError, match="unknown metric 'coverge'; did you mean 'coverage'"):
        RegionDisplay(vir, "coverge")
    with pytest.raises(ValueError, match="at least 20 test rows"):
        DialDisplay(replace(vir, calibration=None))


def test_every_display_has_from_estimator() -> None:
    kinds = [k for k in vars(displays).values() if isinstance(k, type) and k.__name__.endswith("Display")]
    drawn = [k for k in kinds if not getattr(k, "__abstractmethods__", None)]
    assert len(drawn) == 7 and all(hasattr(k, "from_estimator") for k in drawn)


def test_an_estimator_shows_itself_in_a_notebook(models: dict[str, TailRegressor]) -> None:
    """scikit-learn's HTML: the parameters that were set, before and after fit."""
    for model, state in ((TailRegressor(epochs=7, folds=2), "Not fitted"), (models["vir"], "Fitted")):
        shown = model._repr_html_()
        assert "TailRegressor" in shown and state in shown and "sk-estimator" in shown
    assert ">7<" in TailRegressor(epochs=7)._repr_html_()
    assert "text/html" in TailRegressor()._repr_mimebundle_()
