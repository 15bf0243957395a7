"""Scores by label region: those of the metrics, rounded, and those of a contender's own intervals by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tailwise.benchmark import Problem
from tailwise.benchmark.run.region_scores import (
    errors_along_label,
    region_rows,
    score_limits,
    scores_by_region,
)
from tailwise.distributions.members import Normal
from tailwise.metrics import REGIONS


@pytest.fixture
def problem() -> Problem:
    """Labels 0 (many), 1 (medium) and 2 (few), and three test rows of which none is few."""
    y = np.repeat([0.0, 1.0, 2.0], [120, 40, 3])
    x = np.zeros((len(y), 1), np.float32)
    test = np.array([0.0, 0.0, 1.0])
    return Problem("steps", 0, x, y, x[:3], test, x[:3], test, total=169, suite="test")


def test_regions_without_rows_have_no_scores(problem: Problem) -> None:
    table = scores_by_region(Normal(torch.tensor([0.0, 1.0, 3.0]).double(), 1.0), problem, ("mae",))
    assert table == {"all": {"mae": 1.0}, "many": {"mae": 0.5}, "medium": {"mae": 2.0}, "few": {"mae": None}}
    assert region_rows(problem) == {"many": 2, "medium": 1, "few": 0}


def test_errors_of_each_bin(problem: Problem) -> None:
    curve = errors_along_label(Normal(torch.tensor([0.0, 1.0, 3.0]).double(), 1.0), problem)
    assert curve == {"center": [0.0, 1.0], "n": [2.0, 1.0], "mae": [0.5, 2.0]}


def test_limits_replace_coverage_and_width_only(problem: Problem) -> None:
    table: dict[str, Any] = {region: {"coverage": 0.0, "crps": 7.0} for region in REGIONS}
    lower, upper = np.array([-1.0, 0.5, 0.0]), np.array([1.0, 1.5, 4.0])
    score_limits(table, (lower, upper), problem)
    assert table["all"] == {"coverage": 0.666667, "width": 2.33333, "crps": 7.0}
    assert table["many"] == {"coverage": 0.5, "width": 1.5, "crps": 7.0}
    assert table["medium"] == {"coverage": 1.0, "width": 4.0, "crps": 7.0}
    assert table["few"] == {"coverage": None, "width": None, "crps": 7.0}
