"""Members over cells, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from tailwise.core.distributions import NIG, Normal
from tailwise.core.weighted_cells import Member, student_or_normal, tilted_member


@pytest.mark.parametrize("df", [None, 3.0])
def test_tails_and_partial_mean(df: float | None) -> None:
    known = stats.norm if df is None else stats.t(df)
    members = Normal(torch.zeros(1), 1.0) if df is None else NIG(torch.zeros(1), 1.0, df / 2, 1.0)
    for at in (-1.5, 0.0, 0.7):
        below, above, moment = student_or_normal(members)(torch.tensor([at], dtype=torch.float64))
        expected = integrate.quad(lambda t: t * known.pdf(t), at, np.inf)[0]
        np.testing.assert_allclose([below[0], above[0], moment[0]], [known.cdf(at), known.sf(at), expected])


def test_a_tilted_member_by_integration() -> None:
    """Labels above 1 count three times."""
    member = Member(np.ones(1), np.array([0.5]), np.array([2.0]), np.array([6.0]))
    found = tilted_member(member, np.array([[1.0]]), np.log([[1.0], [3.0]]))
    known = stats.t(6.0)
    cut = (1.0 - 0.5) / 2

    def moment(power: int) -> float:
        parts = [
            integrate.quad(lambda t: t**power * known.pdf(t), *ends)[0]
            for ends in ((-np.inf, cut), (cut, np.inf))
        ]
        return float(parts[0] + 3 * parts[1])

    mean = moment(1) / moment(0)
    np.testing.assert_allclose(found.log_z, np.log(moment(0)))
    np.testing.assert_allclose(found.mean, mean)
    np.testing.assert_allclose(found.variance, moment(2) / moment(0) - mean**2)
    np.testing.assert_allclose(
        found.table.share[:, 0], [known.cdf(cut) / moment(0), 3 * known.sf(cut) / moment(0)]
    )
