"""Diagnoses of known label distributions: figures by hand, and every branch of the advice."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tailwise.data import load_abalone
from tailwise.labels.bins import LabelBins
from tailwise.metrics import REGIONS
from tailwise.report.diagnosis import diagnose

RNG = np.random.default_rng(0)
LABELS = {
    "uniform": RNG.uniform(size=3000),
    "small uniform": RNG.uniform(size=200),
    "normal": RNG.normal(size=5000),
    "exponential": RNG.exponential(size=5000),
    "lognormal": RNG.lognormal(0, 2, size=5000),
    "zeros": np.where(RNG.uniform(size=5000) < 0.6, 0.0, RNG.gamma(2, 10, size=5000)),
    "capped": np.minimum(RNG.exponential(size=5000), 1.0),
    "cauchy": RNG.standard_cauchy(size=5000),
    "left": 10 - RNG.gamma(1.5, 1, size=5000),
    "ratings": RNG.choice([1, 2, 3, 4, 5], p=[0.02, 0.05, 0.13, 0.3, 0.5], size=3000),
}


EDGES = r"set bins to (\S+,\S+)\)"


def edges_from(text):
    return [float(edge) for edge in text.split(",")]


def advice_for(labels, **kwargs):
    return "\n".join(diagnose(labels, **kwargs).advice)


def test_golden_figures():
    # Counts 150, 50, 0, 10: four bins, the last two are few-shot.
    found = diagnose(np.repeat([0, 1, 3], [150, 50, 10]))
    assert (found.n, found.low, found.high) == (210, 0.0, 3.0)
    assert found.labels_by_region == {"many": 150, "medium": 50, "few": 10}
    assert found.bins_by_region == {"many": 1, "medium": 1, "few": 2}
    assert found.range_by_region == {"many": 0.25, "medium": 0.25, "few": 0.5}
    assert found.ratio == 15.0
    assert found.top_share == pytest.approx(150 / 210)
    assert found.empty_range == 0.25
    assert found.rare_range == 0.5
    shares = np.array([150, 50, 10]) / 210
    assert found.evenness == pytest.approx(np.prod(shares**-shares) / 4)
    quarter = diagnose(np.repeat([0.0, 1.0], [750, 250]))
    assert quarter.skewness == pytest.approx((1 - 2 * 0.25) / math.sqrt(0.25 * 0.75))
    outlier = diagnose(np.append(np.linspace(0, 1, 1000), 100.0))
    assert (quarter.tail_range, outlier.tail_range) == (0.0, pytest.approx(0.99, abs=1e-3))


def test_abalone():
    found = diagnose(load_abalone()["Rings"])
    assert found.verdict == "imbalanced"
    assert found.labels_by_region == {"many": 3842, "medium": 282, "few": 53}
    assert found.evenness == pytest.approx(0.416, abs=0.005)
    assert found.summary().splitlines()[:2] == [
        "Verdict: imbalanced",
        "4177 labels from 1 to 29 in 29 bins (whole-number labels, one bin for each step of 1)",
    ]
    assert "41% of the range has fewer than 20 labels per bin, 1.3% of all labels" in found.advice[0]


@pytest.mark.parametrize(
    ("name", "verdict", "words"),
    [
        ("small uniform", "balanced", ["Do nothing"]),
        ("uniform", "balanced", ["Do nothing: plain training will do.", "set bounds to 0,1"]),
        ("normal", "imbalanced", ["method 'vir'", "balanced MAE"]),
        ("exponential", "strongly imbalanced", ["wide intervals"]),
        (
            "zeros",
            "strongly imbalanced",
            ["Predict first whether a label is 0", "target_transform to auto or log", "two-part"],
        ),
        ("capped", "mildly imbalanced", ["exactly 1, the largest label: if they were capped"]),
        (
            "lognormal",
            "strongly imbalanced",
            ["The outermost 1% of the labels span", "of the range has no label at all"],
        ),
        ("cauchy", "strongly imbalanced", ["target_transform to yeo-johnson"]),
        ("left", "imbalanced", ["Skewed to the left"]),
        ("ratings", "mildly imbalanced", ["Start with plain training"]),
    ],
)
def test_verdicts_and_advice(name, verdict, words):
    advice = advice_for(LABELS[name])
    assert all(word in advice for word in words), advice
    assert diagnose(LABELS[name]).verdict == verdict
    assert ("wide intervals" in advice) == (verdict == "strongly imbalanced")


def test_a_value_that_many_labels_have():
    assert diagnose(LABELS["zeros"]).spike == (0.0, pytest.approx(np.mean(LABELS["zeros"] == 0)))
    assert diagnose(LABELS["capped"]).spike == (1.0, pytest.approx(math.exp(-1), abs=0.02))
    found = diagnose(LABELS["zeros"])
    assert "--target-transform auto" in found.summary(flags=True)
    assert "`fit --method two-part`" in found.spike_advice(flags=True)


def test_a_long_tail_above_zero_comes_with_edges_to_copy():
    tail = np.append(np.linspace(1, 10, 3000), [20.0, 100.0])  # no crowded bin, but a tail
    found = diagnose(tail)
    (advice,) = (line for line in found.advice if "outermost 1%" in line)
    assert found.top_share < 0.5 and "use edges on a log scale (set bins to 1,1.26,1.58," in advice
    edges = edges_from(re.search(EDGES, advice)[1])
    assert diagnose(tail, bins=LabelBins.from_labels(tail, edges=edges)).empty_range < found.empty_range
    assert advice_for(tail - 1).count("set bin edges by hand.") == 1  # from 0 there is no log scale
    assert "set bins" not in advice_for(tail - 1)
    crowded = advice_for(LABELS["lognormal"])
    assert crowded.count("set bins") == 1 and "transform the labels or use the edges above." in crowded


@pytest.mark.parametrize("labels", [[3.5], [3.5] * 1000, [0], np.full(7, -2)])
def test_a_single_value(labels):
    found = diagnose(labels)
    assert found.verdict == "constant"
    assert "nothing to learn" in found.advice[0]
    assert (found.evenness, found.ratio, found.skewness, found.spike) == (1.0, 1.0, 0.0, None)
    assert found.plot() is not None


@pytest.mark.parametrize("n", [2, 5, 99])
def test_too_few_labels(n):
    found = diagnose(np.linspace(0, 1, n))
    assert found.verdict == "too few to tell"
    assert found.advice[0].startswith(f"Use plain training: {n} labels are too few")
    assert diagnose(np.linspace(0, 1, n), few=1).verdict == ("balanced" if n >= 5 else "too few to tell")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1.0, math.nan, 2.0], "row 1 is nan"),
        ([1.0, 2.0, math.inf], "row 2 is inf"),
        ([], "no labels"),
        (["a", "b"], "must be numbers"),
        (np.ones((5, 2)), r"shape \(5, 2\): diagnose one target"),
        (torch.ones(5, 2), r"shape \(5, 2\): diagnose one target"),
    ],
)
def test_wrong_labels_are_named(labels, message):
    with pytest.raises(ValueError, match=message):
        diagnose(labels)


@given(
    labels=st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=150),
    repeat=st.integers(1, 5),
)
def test_any_labels_give_sound_figures(labels, repeat):
    found = diagnose(labels * repeat)
    assert 0 < found.evenness <= 1
    assert sum(found.labels_by_region.values()) == found.n == repeat * len(labels)
    assert sum(found.range_by_region.values()) == pytest.approx(1)
    for share in (found.rare_range, found.empty_range, found.top_share, found.tail_range):
        assert -1e-9 <= share <= 1 + 1e-9
    assert math.isfinite(found.skewness)
    assert found.ratio >= 1
    assert found.advice and found.summary()
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1e-290), (0.0, 1e140), (-5.0, 1000.0)])
def test_the_verdict_does_not_depend_on_units(shift, scale):
    for labels in LABELS.values():
        one, other = diagnose(labels), diagnose(labels * scale + shift)
        assert one.verdict == other.verdict
        assert other.evenness == pytest.approx(one.evenness)
        assert other.skewness == pytest.approx(one.skewness, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", ["zeros", "cauchy"])
def test_plot_draws_every_occupied_bin(name):
    found = diagnose(LABELS[name])
    ax = found.plot(label="price")
    heights = sorted(bar.get_height() for bars in ax.containers for bar in bars)
    assert heights == sorted(found.bins.counts[found.bins.counts > 0].tolist())
    assert ax.get_title().startswith(found.verdict)
    assert (ax.get_xlabel(), ax.get_yscale()) == ("price", "log")
    shown = [text.get_text() for text in ax.get_legend().get_texts()]
    occupied = found.bins.regions()[found.bins.counts > 0]
    assert shown == [f"{r}-shot" for r in REGIONS[1:] if (occupied == r).any()]


@pytest.mark.parametrize(
    ("labels", "bounds"),
    [
        (np.repeat(np.arange(101), 3), (0.0, 100.0)),
        (np.linspace(0.01, 0.99, 200), (0.0, 1.0)),
        (np.exp(np.linspace(-4, 2, 300)), (0.0, None)),
        (np.repeat(np.arange(1, 7), 30), (1.0, 6.0)),
        (np.linspace(900, 1000, 300), None),
        (np.linspace(-1, 5, 300), None),
    ],
)
def test_bounds_are_proposed_where_labels_show_them(labels, bounds):
    found = diagnose(labels)
    assert found.bounds == bounds
    assert ("set bounds to" in "".join(found.advice)) == (bounds is not None)
