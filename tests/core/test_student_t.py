"""Functions of the Student-t, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import special, stats

from tailwise.core.student_t import log_gamma_ratio, mixture_quantile, student_quantile, with_scipy


def test_the_ratio_of_gammas_does_not_cancel() -> None:
    a = torch.tensor([0.1, 1.0, 30.0], dtype=torch.float64)
    np.testing.assert_allclose(log_gamma_ratio(a), special.gammaln(a + 0.5) - special.gammaln(a), rtol=1e-12)
    large = torch.tensor([1e8])  # where the ratio is the square root of a
    np.testing.assert_allclose(log_gamma_ratio(large), 0.5 * np.log(1e8), rtol=1e-6)


def test_quantiles_reach_both_ends() -> None:
    levels = np.array([0.0, 0.05, 0.5, 1.0])
    np.testing.assert_allclose(
        student_quantile(np.full(4, 3.0), levels), stats.t(3.0).ppf(levels), atol=1e-12
    )


def test_scipy_keeps_dtype() -> None:
    found = with_scipy(special.ndtr, torch.zeros(1), torch.zeros(1, requires_grad=True))
    assert found.dtype == torch.float32 and found.tolist() == [0.5] and not found.requires_grad


def test_quantiles_beside_a_narrow_part_are_exact_after_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in two-part predictions: a very narrow part at 0, and a wide one."""
    p, locations = np.linspace(0.05, 0.95, 150), np.linspace(-2, 5, 150)
    weight, location = np.stack([p, 1 - p]), np.stack([np.zeros(150), locations])
    scale, df = np.stack([np.full(150, 1e-3), np.full(150, 2.0)]), np.stack([np.full(150, 200.0), 2 + p])
    steps, cdf = [], special.stdtr
    monkeypatch.setattr(special, "stdtr", lambda v, z: (steps.append(z.shape[1]), cdf(v, z))[1])
    level = np.tile([0.05, 0.5, 0.95], 50)
    y = mixture_quantile(weight, location, scale, df, level)
    assert len(steps) < 30 and sum(steps) < 10 * 150
    np.testing.assert_allclose((weight * cdf(df, (y - location) / scale)).sum(0), level, rtol=0, atol=1e-13)
