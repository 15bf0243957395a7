"""Functions of the Student-t, against SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from tailwise.distributions.student_t import StudentT, log_gamma_ratio


def test_the_ratio_of_gammas_does_not_cancel() -> None:
    a = torch.tensor([0.1, 1.0, 30.0], dtype=torch.float64)
    np.testing.assert_allclose(log_gamma_ratio(a), special.gammaln(a + 0.5) - special.gammaln(a), rtol=1e-12)
    large = torch.tensor([1e8])  # where the ratio is the square root of a
    np.testing.assert_allclose(log_gamma_ratio(large), 0.5 * np.log(1e8), rtol=1e-6)


@pytest.mark.parametrize("df", [math.inf, 3.0])
def test_sides_and_partial_mean(df: float) -> None:
    known, student = stats.t(df), StudentT(torch.tensor([df]))
    for at in (-1.5, 0.0, 0.7):
        z = torch.tensor([at], dtype=torch.float64)
        moment = integrate.quad(lambda t: t * known.pdf(t), at, np.inf)[0]
        found = (*student.sides(z), student.log_moment(z).exp())
        np.testing.assert_allclose(torch.cat(found), [known.cdf(at), known.sf(at), moment])
    assert student.sides(torch.zeros(1))[0].dtype == torch.float32


def test_quantiles_beside_a_narrow_part_are_exact_after_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in two-part predictions: a very narrow part at 0, and a wide one."""
    p, locations = torch.linspace(0.05, 0.95, 150).double(), torch.linspace(-2, 5, 150).double()
    weight, location = torch.stack([p, 1 - p]), torch.stack([torch.zeros_like(p), locations])
    scale, df = (
        torch.stack([torch.full_like(p, 1e-3), 2 + 0 * p]),
        torch.stack([torch.full_like(p, 200), 2 + p]),
    )
    steps, cdf = [], special.stdtr
    monkeypatch.setattr(special, "stdtr", lambda v, z: (steps.append(z.shape[1]), cdf(v, z))[1])
    level = torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64).repeat(50)
    y = StudentT(df).mixture_quantile(weight, location, scale, level)
    assert len(steps) < 30 and sum(steps) < 10 * 150
    np.testing.assert_allclose((weight * cdf(df, (y - location) / scale)).sum(0), level, rtol=0, atol=1e-13)
