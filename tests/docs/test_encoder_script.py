"""The study of VIR's encoder (benchmarks/encoder.py): its scores, its variants and its rule."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import encoder
from tailwise.benchmark.data.problems import Problem
from tailwise.benchmark.data.suites import get_suite
from tailwise.benchmark.pages.statistics import Results
from tailwise.benchmark.run.results import Record, ResultsFile, check_comparable
from tailwise.core.distributions import Normal
from tailwise.core.labels import LabelBins

FOLDER = Path(__file__).parents[2] / "docs" / "results"


def test_the_lines_have_the_options_of_today() -> None:
    path = FOLDER / "encoder.jsonl"
    recipe, contenders = get_suite("development").recipe, [v.contender for v in encoder.VARIANTS]
    check_comparable(ResultsFile(path).records, recipe, path, contenders, "encoder")


def test_natural_weights_give_each_bin_its_share_of_the_training_labels() -> None:
    bins = LabelBins.from_labels([0, 0, 0, 1])
    weights = encoder.natural_weights(np.array([0.0, 1.0, 1.0]), bins)
    assert weights.tolist() == [2.25, 0.375, 0.375]


def test_scores_by_hand() -> None:
    x, train = np.zeros((4, 1), np.float32), np.array([0.0, 0.0, 0.0, 1.0])
    test = np.array([0.0, 1.0, 1.0])
    problem = Problem("a", 0, x, train, x[:3], test, x[:3], test, total=10, shots=(2, 2))
    # Errors of 1 where three of four training labels are, and of 3 and 1 where one is.
    scores = encoder.scores_of(Normal(torch.tensor([1.0, 4.0, 2.0]), 1e-12), problem)
    assert scores["balanced/mae"] == 1.5 and scores["natural/mae"] == 1.25 and scores["few/mae"] == 2.0
    crps = (scores["balanced/crps"], scores["natural/crps"])
    assert crps == pytest.approx((1.5, 1.25), abs=1e-4)


def line(method: str, data: str, *, crps: float, mae: float, other: float = 1.0) -> Record:
    scores = {"balanced/crps": crps, "natural/mae": mae, "balanced/crps, balanced calibration": other}
    return {"method": method, "title": method, "data": data, "seed": 0, "digest": "", "scores": scores}


def test_the_rule_takes_the_lowest_crps_within_the_limit() -> None:
    figures = {
        "vanilla": (1.0, 1.0), "vir": (0.5, 1.011), "near": (0.8, 1.009), "plain": (0.9, 0.7),
    }  # fmt: skip
    results = Results(
        line(name, data, crps=unit * crps, mae=unit * mae)
        for data, unit in (("a", 1.0), ("b", 100.0))
        for name, (crps, mae) in figures.items()
    )
    assert encoder.ranked(results) == ["near", "plain"]
    assert encoder.frontier(results) == ["plain", "near", "vir"]  # plain beats vanilla in both
    text = "\n".join(encoder._rule_in_words(results))
    assert "1.011 times Vanilla's natural MAE. The rule does not accept it" in text
    assert "would choose near (0.800)" in text and "plain (0.900)" in text
    last = Results({**r, "method": r["method"].replace("near", encoder.LATER)} for r in results.records)
    assert "without it the rule would choose plain (0.900)" in encoder._rule_in_words(last)[-1]
    none = Results(r for r in results.records if r["method"] in ("vanilla", "vir"))
    assert "The rule chooses nothing" in encoder._rule_in_words(none)[-1]


def test_ratios_are_geometric_means_over_tables() -> None:
    records = [line("vanilla", data, crps=1.0, mae=1.0) for data in "ab"]
    records += [line("vir", "a", crps=0.5, mae=1.0), line("vir", "b", crps=8.0, mae=1.0)]
    (ratio,) = encoder.ratios(Results(records), encoder.BALANCED_CRPS, "vir")
    assert ratio == pytest.approx(2.0)
    assert encoder.percent(math.log(1.02)) == "+2.0"


def test_every_variant_has_known_options_and_a_row() -> None:
    names = {name for variant in encoder.VARIANTS for name, _ in variant.lines().values()}
    assert {name for _, *pair in encoder.PAIRS for name in pair} <= names
    parts = [encoder.WHOLE, *encoder.SMOOTHING, *encoder.LATENT]
    assert len(set(parts)) == len(parts) and set(parts) <= set(encoder.PAIRS)
    assert all("latents" in what for what, *_ in encoder.LATENT)
