"""Label densities by hand, and the laws of emphasis and changes of prior (VIR:dial)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailwise.distributions.members import Distribution, Normal
from tailwise.labels import prior as label_prior
from tailwise.labels.bins import LabelBins
from tailwise.labels.prior import FLOOR, LabelDensity, change_of_prior, emphasis
from tests.label_samples import label_lists, labels_with_counts, law, skewed
from tests.prediction_samples import KINDS, close, doubles, make

BINS = LabelBins.from_labels(skewed(0))
TRAINING = LabelDensity.from_bins(BINS)


def histogram(edges: Any, counts: Any, floor: float = FLOOR) -> LabelDensity:
    """The density of a histogram on its own cells, without smoothing."""
    bins = LabelBins(np.asarray(edges, np.float64), np.asarray(counts))
    return LabelDensity.from_bins(bins, kernel=None, floor=floor)


def same(one: Distribution, two: Distribution, **tolerance: float) -> None:
    """Whether two distributions agree in everything that is read from them."""
    y = one.quantile(0.37).detach()
    close(one.mean, two.mean, **tolerance)
    close(one.variance, two.variance, **tolerance)
    close(one.nll(y), two.nll(y), atol=1e-8)
    close(one.cdf(y), two.cdf(y), atol=1e-8)
    for q in (0.01, 0.9):
        close(one.quantile(q), two.quantile(q), **tolerance)


dials = st.floats(-1.5, 1.5)
laws = settings(max_examples=10)


@laws
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 99), t=dials)
def test_emphasis_there_and_back_is_the_identity(kind: str, seed: int, t: float) -> None:
    base, _ = make(kind, 3, seed)
    there = emphasis(TRAINING, t).apply(base)
    assert emphasis(TRAINING, -t).apply(there) is base
    assert emphasis(TRAINING, 0.0).is_identity


@laws
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 99), at=st.integers(0, 9))
def test_two_changes_of_prior_compose(kind: str, seed: int, at: int) -> None:
    base, _ = make(kind, 3, seed)
    second = LabelDensity.from_bins(LabelBins.from_labels(skewed(at, 80) + at / 3))  # bins of its own
    third = histogram([-1.0, 0.0, 1.5, 7.0], [1, 5, 2])
    steps = change_of_prior(second, third).apply(change_of_prior(TRAINING, second).apply(base))
    same(steps, change_of_prior(TRAINING, third).apply(base), rtol=1e-7, atol=1e-9)
    assert change_of_prior(third, TRAINING).apply(change_of_prior(TRAINING, third).apply(base)) is base


some_labels = label_lists.filter(lambda values: max(map(abs, values)) == 0 or max(map(abs, values)) > 1e-290)


@law
@given(values=some_labels)
def test_a_prior_equal_to_the_training_density_is_emphasis_zero(values: list[float]) -> None:
    training = LabelDensity.from_bins(LabelBins.from_labels(values))
    assert change_of_prior(training, training).is_identity
    assert change_of_prior(training, LabelDensity.from_prior(np.array(values), training)).is_identity
    prior = training.edges, training.density * np.diff(training.edges)
    again = change_of_prior(training, LabelDensity.from_prior(prior, training))
    assert np.ptp(again.log_weights) < 1e-9


@laws
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 99),
    shift=st.floats(-50, 50),
    scale=st.sampled_from([0.01, 1.0, 300.0, -1.0, -7.0]),
    t=dials,
)
def test_shifting_and_scaling_labels_shifts_and_scales_predictions(
    kind: str, seed: int, shift: float, scale: float, t: float
) -> None:
    base, _ = make(kind, 3, seed)
    after = emphasis(TRAINING, t).apply(base).rescale(shift, scale)
    before = emphasis(TRAINING, t).rescale(shift, scale).apply(base.rescale(shift, scale))
    same(after, before, rtol=1e-6, atol=1e-6 * abs(scale))


@law
@given(values=some_labels, t=st.floats(-3, 3))
def test_densities_of_any_labels_have_a_floor_and_few_cells(values: list[float], t: float) -> None:
    density = LabelDensity.from_bins(LabelBins.from_labels(values))
    widths = np.diff(density.edges)
    assert density.density.size <= label_prior.MAX_CELLS
    assert density.density @ widths == pytest.approx(1.0)
    even = 1 / (density.edges[-1] - density.edges[0])
    assert density.density.min() >= FLOOR * even * (1 - 1e-9)
    reach = float(np.ptp(density.edges))
    if not 1e-100 < reach < 1e100:  # its square would overflow
        return
    tilted = emphasis(density, t).apply(Normal(doubles(values[0]), reach**2))
    assert tilted.mean.isfinite().all() and tilted.nll(values[0]).isfinite().all()


def test_density_of_bins_by_hand() -> None:
    bins = LabelBins.from_labels(labels_with_counts([6, 3, 1]))
    plain = LabelDensity.from_bins(bins, kernel=None)
    close(plain.density, [0.6, 0.3, 0.1])
    # A triangular window of (1/4, 1/2, 1/4) that reflects at the ends keeps the whole mass at 1.
    smooth = LabelDensity.from_bins(bins, kernel="triangular", radius=1)
    masses = np.array([0.6 / 2 + 0.3 / 2, 0.6 / 4 + 0.3 / 2 + 0.1 / 4, 0.1 / 2 + 0.3 / 2])
    close(smooth.density, masses / masses.sum())
    # Empty bins get the floor, 20% of the mean density of 1/3, and the rest keeps its proportions.
    gap = LabelBins.from_labels(labels_with_counts([6, 0, 4]))
    floored = LabelDensity.from_bins(gap, kernel=None, floor=0.2).density
    close(floored, [0.6 * (1 - 0.2 / 3), 0.2 / 3, 0.4 * (1 - 0.2 / 3)])
    # Lowering the others may bring one of them to the floor in turn: 0.31 (1 - 0.3) < 0.3.
    again = histogram([0.0, 1.0, 2.0, 3.0], [69, 0, 31], floor=0.9).density
    close(again, [0.4, 0.3, 0.3])


def test_priors_of_every_form() -> None:
    def rising(y: Any) -> Any:
        return 2 * y

    train = histogram(np.arange(5.0), [4, 3, 2, 1])
    expected = np.array([1, 3, 5, 7]) / 16
    forms: list[Any] = [
        rising,
        (train.edges, expected),
        (expected, train.edges),
        (16 * expected, list(train.edges)),
        [list(train.edges), list(expected)],
        LabelDensity.from_prior(rising, train),
    ]
    for prior in forms:
        close(LabelDensity.from_prior(prior, train).density, expected)
    sample = labels_with_counts([1, 3, 5, 7]) + 0.5
    smooth = LabelDensity.from_bins(LabelBins(train.edges, np.array([1, 3, 5, 7])))
    close(LabelDensity.from_prior(sample, train).density, smooth.density)
    # Half of the second bar lies in the third and fourth cell, and what lies beyond them is left out.
    wide = LabelDensity.from_prior(([0.0, 2.0, 6.0], [1.0, 2.0]), train)
    close(wide.density, [0.25, 0.25, 0.25, 0.25])


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ([200.0, 300.0], "no mass between 0 and 4, the range of the training labels: its labels lie"),
        (([10.0, 20.0], [5.0]), "no mass between 0 and 4"),
        (lambda y: -y, "one density per label, finite and not negative"),
        (lambda y: 1.0, "one density per label"),
        (([0.0, 1.0, 2.0], [1.0, -1.0]), "counts must not be negative, got -1"),
        (([0.0, 2.0, 1.0], [1.0, 1.0]), "2 counts need 3 ascending edges"),
    ],
)
def test_a_prior_that_cannot_be_used_is_named(prior: Any, message: str) -> None:
    train = histogram(np.arange(5.0), [4, 3, 2, 1])
    with pytest.raises(ValueError, match=message):
        LabelDensity.from_prior(prior, train)
