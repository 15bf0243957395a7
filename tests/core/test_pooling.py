"""One distribution for the predictions of several models."""

from __future__ import annotations

import pytest
import torch

from tailwise.core.distributions import NIG, Distribution, Mixture, Normal
from tailwise.core.pooling import pooled


def at(value: float) -> torch.Tensor:
    return torch.tensor([value], dtype=torch.float64)


@pytest.mark.parametrize(
    "parts",
    [
        [Normal(at(0), 1.0), Normal(at(4), 3.0)],
        [NIG(at(0), 2.0, 3.0, 4.0), NIG(at(2), 1.0, 5.0, 4.0)],
        [
            Mixture([Normal(at(0), 1.0), Normal(at(1), 1.0)]),
            Mixture([Normal(at(5), 1.0), Normal(at(6), 1.0)]),
        ],
    ],
    ids=["normal", "nig", "mixture"],
)
def test_moments_are_those_of_the_mixture_of_all(parts: list[Distribution]) -> None:
    one = pooled(parts)
    assert type(one) is type(parts[0])
    means = torch.stack([part.mean for part in parts])
    torch.testing.assert_close(one.mean, means.mean(0))
    between = means.var(0, correction=0)
    torch.testing.assert_close(one.variance, torch.stack([p.variance for p in parts]).mean(0) + between)
    if not isinstance(one, Normal):  # a Normal cannot tell the variance between models from noise
        torch.testing.assert_close(one.aleatoric, torch.stack([p.aleatoric for p in parts]).mean(0))


def test_one_is_itself_and_infinite_variances_make_a_mixture() -> None:
    heavy = NIG(at(0), 1.0, 0.9, 1.0)
    assert pooled([heavy]) is heavy
    assert isinstance(pooled([heavy, heavy]), Mixture)
