"""Predictions from operations that ONNX has, against SciPy and against predictions as users get them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from tailwise.calibration.scaling import standard_deviation
from tailwise.distributions.members import NIG, Distribution, Mixture, Normal
from tailwise.distributions.tilt import Tilt
from tailwise.distributions.truncation import Bounds
from tailwise.onnx.student_t import TAIL_DF, StudentTails, traceable

LEVELS = (0.001, 0.05, 0.5, 0.95, 0.999)


def degrees_of_freedom() -> Tensor:
    low, high = TAIL_DF
    return torch.from_numpy(np.concatenate([np.linspace(low, 8, 200), np.geomspace(low, high, 300)]))[:, None]


def test_tails_against_scipy() -> None:
    df = degrees_of_freedom()
    z = torch.from_numpy(np.concatenate([np.linspace(0, 8, 200), np.geomspace(8, 1e5, 100)]))
    tails, exact = StudentTails()(df).above(z).numpy(), stats.t.sf(z, df)
    seen = exact > 1e-250
    np.testing.assert_allclose(tails[seen], exact[seen], rtol=2e-6)
    assert (tails[~seen] < 1e-240).all()


def test_quantiles_against_scipy() -> None:
    level = torch.from_numpy(np.concatenate([np.geomspace(1e-12, 0.5, 100), np.linspace(0.01, 0.999, 50)]))
    df = degrees_of_freedom()
    one, exact = torch.ones(1, *df.shape, dtype=df.dtype), stats.t.ppf(level, df)
    quantiles = StudentTails()(df[None]).mixture_quantile(one, 0 * one, one, level.expand(len(df), -1))
    np.testing.assert_allclose(quantiles, exact, rtol=1e-5, atol=1e-5)


def test_partial_means_against_the_normal() -> None:
    z = torch.linspace(0, 6, 50, dtype=torch.float64)
    moment = StudentTails()(torch.tensor(TAIL_DF[1], dtype=torch.float64)).log_moment(z).exp()
    np.testing.assert_allclose(moment, stats.norm.pdf(z), rtol=1e-4)


def belief(n: int = 500) -> NIG:
    """Predictions narrow and wide, within the labels and beyond, with tails heavy and light."""
    rng = np.random.default_rng(0)
    gamma, nu, alpha, beta = rng.normal(size=(4, n))
    return NIG(
        *map(torch.from_numpy, (2 * gamma, np.exp(nu), 1.001 + np.exp(2 * alpha), np.exp(2 * beta - 3)))
    )


def emphasis() -> Tilt:
    """The weights of an emphasis of 1: labels around 0 are 400 times as common as those beyond 3.5."""
    cuts = np.linspace(-3, 6, 99)
    centers = np.append(cuts - 0.05, cuts[-1] + 0.05)
    return Tilt(cuts, -np.log(np.maximum(stats.norm.pdf(centers), 0.001)))


def kinds() -> dict[str, Distribution]:
    nig = belief()
    normal = Normal(nig.mean, nig.variance)
    mean = torch.tensor([0.3, 1.3], dtype=torch.float64)
    return {
        "NIG": nig,
        "Normal": normal,
        "mixture of NIG": Mixture([nig, nig.rescale(1.0, 2.0), nig.rescale(-1.0, 0.3)]),
        "mixture of Normal": Mixture([normal, Normal(normal.mean + 0.5 * normal.std, 2 * normal.variance)]),
        "members far apart": Mixture([Normal(mean, 0.01), Normal(mean + 0.6, 0.02)]),
        "heavy tail": NIG(torch.zeros(1, dtype=torch.float64), 1.0, 0.9, 1.0),
        "no spread": Normal(mean, 0.0),
    }


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("bounds", [Bounds(), Bounds(-1.0, 2.0)], ids=str)
@pytest.mark.parametrize("tilt", [Tilt(), emphasis()], ids=["no emphasis", "emphasis"])
def test_predictions_agree(kind: str, bounds: Bounds, tilt: Tilt) -> None:
    def answers() -> list[Tensor]:
        prediction = bounds.apply(tilt.apply(kinds()[kind]))
        quantiles = [prediction.quantile(level) for level in LEVELS]
        return [prediction.mean, prediction.point, standard_deviation(prediction), *quantiles]

    exact = answers()
    with traceable(StudentTails()):
        traced = answers()
    for a, b in zip(traced, exact, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4, equal_nan=True)
