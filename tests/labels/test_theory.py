"""VIR:risk and VIR:bound against plain loops and simulations of the paper's sampling model."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tailwise.labels import theory
from tailwise.labels.kernels import kernel_matrix

ETA = 0.1
BINS, SIZE = 12, 40


@pytest.fixture(scope="module")
def world():
    """Return 12 x 40 losses in [0, 1], larger in rare bins, and 4,000 imbalanced draws of them."""
    rng = np.random.default_rng(0)
    index = np.repeat(np.arange(BINS), SIZE)
    counts = np.array([2, 3, 6, 14, 30, 40, 36, 22, 10, 5, 3, 2])
    propensity = theory.propensities(counts)
    losses = rng.beta(2, 2 + 6 * propensity[index])
    observed = rng.random((4000, index.size)) < propensity[index]
    smooth = theory.smoothed(propensity, kernel_matrix(BINS))
    sizes = np.full(BINS, SIZE)
    return index, propensity, smooth, sizes, losses, observed


def balanced_risk(losses, index):
    """Mean over bins of each bin's mean loss."""
    return np.mean([losses[..., index == b].mean(-1) for b in np.unique(index)], axis=0)


def test_estimators_equal_a_plain_loop(world):
    index, propensity, smooth, sizes, losses, observed = world
    seen = observed[0]
    for chance in (propensity, smooth):
        total = 0.0
        for b in range(BINS):
            members = [losses[j] / chance[b] for j in range(index.size) if index[j] == b and seen[j]]
            total += sum(members) / sizes[b]
        got = theory.ips_risk(losses, index, chance, sizes, seen)
        assert got == pytest.approx(total / BINS, rel=1e-12)
        # Passing only what was observed is the same as masking.
        assert theory.ips_risk(losses[seen], index[seen], chance, sizes) == pytest.approx(got, rel=1e-12)
    assert theory.naive_risk(losses, seen) == pytest.approx(losses[seen].mean())


def test_ips_is_unbiased_exactly_on_a_set_small_enough_to_enumerate():
    losses, index = np.array([0.2, 0.9, 0.4]), np.array([0, 0, 1])
    propensity, sizes = np.array([0.5, 0.25]), np.array([2, 1])
    expected = 0.0
    for code in range(8):
        seen = np.array([code >> j & 1 for j in range(3)])
        chance = np.prod(np.where(seen, propensity[index], 1 - propensity[index]))
        expected += chance * theory.ips_risk(losses, index, propensity, sizes, seen)
    assert expected == pytest.approx(balanced_risk(losses, index), rel=1e-12)


@pytest.mark.parametrize("tight", [False, True])
def test_bound_holds_with_the_stated_frequency(world, tight):
    index, propensity, smooth, sizes, losses, observed = world
    truth = balanced_risk(losses, index)
    vir = theory.ips_risk(losses, index, smooth, sizes, observed)
    upper = theory.bound(vir, propensity, smooth, eta=ETA, sizes=sizes if tight else None)
    assert np.mean(upper >= truth) >= 1 - ETA
    ips = theory.ips_risk(losses, index, propensity, sizes, observed)
    upper = theory.bound(ips, propensity, propensity, eta=ETA, sizes=sizes if tight else None)
    assert np.mean(upper >= truth) >= 1 - ETA
    if tight:  # without its variance term the bound fails: the test can tell
        assert np.mean(ips >= truth) < 1 - ETA


def test_bound_holds_for_the_hypothesis_that_the_data_chose(world):
    index, propensity, smooth, sizes, _, observed = world
    rng = np.random.default_rng(1)
    hypotheses = rng.random((30, index.size))  # losses of 30 predictors that are equally good
    truth = balanced_risk(hypotheses, index)
    draws = observed[:500].astype(float)
    estimates = np.stack([theory.ips_risk(h, index, smooth, sizes, draws) for h in hypotheses])
    chosen = estimates.argmin(0)
    assert len(set(chosen)) > 5  # the data does choose
    upper = theory.bound(estimates.min(0), propensity, smooth, eta=ETA, hypotheses=30, sizes=sizes)
    assert np.mean(upper >= truth[chosen]) >= 1 - ETA


def test_terms_by_hand():
    biased = theory.bound(0.0, [1.0, 0.25], [0.8, 0.5], max_loss=2) - theory.bound(
        0.0, [0.8, 0.5], [0.8, 0.5], 2
    )
    assert biased == pytest.approx(0.75)
    # 1/4 + 1/0.0625 = 4 + 16 = 20 under the root, B = 2, D = 3, log(2 * 5 / 0.1) = log 100
    expected = 3 / 2 * math.sqrt(math.log(100) / 2) * math.sqrt(20)
    total = theory.bound(0.5, [1.0, 0.25], [0.5, 0.25], 3, eta=0.1, hypotheses=5)
    assert total == pytest.approx(0.5 + 3 / 2 * 1.0 + expected)


def test_errors_say_what_is_wrong():
    with pytest.raises(ValueError, match="bin 0 has 0"):
        theory.ips_risk([1.0], [0], [0.0], [1])
    with pytest.raises(ValueError, match="eta must lie"):
        theory.bound(0.5, [1.0], [1.0], eta=1.0)
