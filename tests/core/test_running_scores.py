"""Metrics of rows in parts equal those of all rows at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tailwise.core.distributions import NIG, Normal
from tailwise.core.labels import LabelBins
from tailwise.core.metrics import METRICS, by_region, evaluate
from tailwise.core.running_scores import RunningScores
from tailwise.core.scores import MEANS, pearson

MEANS_AND_PEARSON = [m.name for m in METRICS.values() if m.function in MEANS or m.function is pearson]


def predictions(n: int = 900) -> tuple[NIG, torch.Tensor, LabelBins]:
    generator = torch.Generator().manual_seed(0)
    y = torch.exp(3 + torch.randn(n, generator=generator)).double()
    parts = [0.5 + torch.rand(n, generator=generator).double() for _ in range(3)]
    gamma = y + torch.randn(n, generator=generator)
    return NIG(gamma, parts[0], 1 + parts[1], parts[2]), y, LabelBins.from_labels(y.numpy())


def in_parts(scores: RunningScores, d: NIG, y: torch.Tensor, **columns: np.ndarray) -> None:
    for rows in torch.arange(y.numel()).split(137):
        scores.add(d[rows], y[rows], **{name: values[rows.numpy()] for name, values in columns.items()})
    scores.add(d[:0], y[:0])


def test_every_mean_equals_that_of_all_rows() -> None:
    d, y, bins = predictions()
    names = [f"{region}{name}" for name in MEANS_AND_PEARSON for region in ("", "few/", "gap/")]
    scores = RunningScores(bins, names, many=50, few=10)
    in_parts(scores, d, y)
    expected = evaluate(d, y, bins, names, many=50, few=10)
    assert scores.evaluate() == pytest.approx(expected, rel=1e-9, abs=1e-11, nan_ok=True)
    assert math.isfinite(expected["few/pearson"]) and math.isfinite(expected["gap/balanced_nll"])


def test_the_table_by_region() -> None:
    d, y, bins = predictions()
    scores = RunningScores(bins, ["rmse", "balanced_mae"], many=50, few=10)
    in_parts(scores, d, y, doubled=2 * y.numpy())
    table = scores.by_region()
    whole = by_region(d, y, bins, ["rmse", "balanced_mae"], many=50, few=10)
    np.testing.assert_allclose(table[whole.columns], whole, rtol=1e-9)
    few = bins.counts[bins.index(y.numpy())] < 10
    np.testing.assert_allclose(table.loc["few", "doubled"], 2 * y.numpy()[few].mean(), rtol=1e-12)


def test_regions_without_rows_and_constants_are_nan() -> None:
    scores = RunningScores(LabelBins.from_labels([0, 0, 0, 1]), ["mae", "pearson", "balanced_mae"])
    scores.add(Normal(torch.full((3,), 0.1), 1.0), [0.0, 0.0, 1.0], x=[1, 2, 3])
    assert scores.evaluate()["mae"] == pytest.approx(1.1 / 3)
    assert math.isnan(scores.evaluate()["pearson"])
    assert scores.by_region().loc["many"].isna().sum() == 4


def test_metrics_that_need_all_rows_are_refused() -> None:
    for name in ("ause", "few/spearman", "ence"):
        with pytest.raises(ValueError, match=f"'{name}' needs all rows at once"):
            RunningScores(LabelBins.from_labels([0, 1]), [name])


def test_parts_with_other_columns_are_refused() -> None:
    scores = RunningScores(LabelBins.from_labels([0.0, 1.0]), ["mae"])
    scores.add(Normal(torch.zeros(2), 1.0), [0.0, 1.0], x=[1, 2])
    for other in ({}, {"x": [1], "z": [1]}):
        with pytest.raises(ValueError, match=r"but earlier ones \['x'\]"):
            scores.add(Normal(torch.zeros(1), 1.0), [0.0], **other)
    assert scores.by_region().loc["all", "x"] == 1.5
