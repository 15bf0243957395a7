"""Functions of the Student-t, against SciPy."""

from __future__ import annotations

import numpy as np
import torch
from scipy import special, stats

from tailwise.core.student_t import log_gamma_ratio, student_quantile, with_scipy


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
