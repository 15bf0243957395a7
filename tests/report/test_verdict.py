"""A verdict says what the test rows show, and no more: twenty generated tables with known answers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tailwise.labels.bins import LabelBins
from tailwise.report.baselines import Lineup, score_constant
from tailwise.report.scoring import Scored
from tailwise.report.verdict import judge, untested_range
from tests.report.made import TRAIN, Table, said, scored

USE = "For point predictions, use VIR"
NONE = "There is no recommendation for point predictions"


# -- nothing to gain -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 100])
def test_nothing_to_gain_and_enough_rows_to_say_so(seed: int) -> None:
    table = Table.of(40_000, 6000, 6000, seed=seed)
    verdict = said(table.lineup(table.model()))
    # Only regions that were compared are named: others may have too few rows.
    assert "differ by at most 1% for common labels, less common labels and rare labels" in verdict.headline
    assert "is enough: more than that cannot be gained." in verdict.advice and "use VIR" not in verdict.advice


@pytest.mark.parametrize("rows", [(2000, 200, 100), (300, 40, 20)])
def test_nothing_to_gain_is_undecided_with_fewer_rows(rows: tuple[int, int, int]) -> None:
    table = Table.of(*rows)
    verdict = said(table.lineup(table.model()))
    names = "the plain network, CatBoost and weighted CatBoost"
    assert f"whether VIR is more accurate than {names} is undecided" in verdict.headline
    assert f"{NONE}: the differences to {names} are within their error" in verdict.advice
    assert verdict.status == "mixed" and USE not in verdict.text


# -- a gain in the tail --------------------------------------------------------------------------


def test_a_gain_over_every_baseline_is_recommended() -> None:
    table = Table.of()
    verdict = said(table.lineup(table.model(), *(table.model(rare=1.5, seed=s) for s in (1, 2, 3))))
    assert verdict.headline.endswith(
        "for rare labels its error is lower than that of the plain network, CatBoost and weighted CatBoost."
    )
    assert verdict.advice.startswith(
        f"{USE}: on these rows its error is lower than that of the plain network for"
    )
    assert "and clearly higher in no region." in verdict.advice and verdict.status == "good"


def test_a_gain_over_the_plain_network_alone_is_not_recommended() -> None:
    table = Table.of()
    verdict = said(table.lineup(table.model(), other=table.model(rare=1.5, seed=1)))
    assert "Against the plain network, the error is lower for rare labels (MAE " in verdict.text
    assert "undecided for common labels (MAE " in verdict.text
    assert USE not in verdict.text and "the differences to CatBoost and weighted CatBoost" in verdict.advice


def test_a_gain_that_costs_elsewhere_depends_on_what_matters() -> None:
    table = Table.of()
    rivals = [table.model(rare=1.5, seed=s) for s in (1, 2, 3)]
    verdict = said(table.lineup(table.model(common=1.0), *rivals))
    assert "VIR is more accurate for rare labels, and " in verdict.headline
    assert f"{USE} if rare labels matter most, and " in verdict.advice
    assert "if common labels and less common labels do." in verdict.advice and verdict.status == "mixed"


def test_a_gain_that_label_weights_bring_too_is_no_reason_to_use_it() -> None:
    """Between CatBoost, better for common labels, and weighted CatBoost, better for rare ones."""
    table = Table.of()
    verdict = said(
        table.lineup(
            table.model(common=0.7, rare=0.7),
            table.model(common=0.7, rare=2.0, seed=1),
            table.model(rare=2.0, seed=2),
            table.model(common=1.5, seed=3),
        )
    )
    assert (
        "CatBoost is more accurate for common labels and less common labels and weighted" in verdict.headline
    )
    assert verdict.advice.startswith(
        "For point predictions, use CatBoost if common labels and less common labels matter most, weighted "
        "CatBoost if rare labels do: for no labels is the error of VIR clearly lower than that of every "
        "baseline."
    )


# -- harm ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("common", "rare", "where"),
    [(1.0, 0.0, "common labels and less common labels"), (0.0, 1.5, "rare labels"),
     (1.0, 1.5, "common labels, less common labels and rare labels")],
)  # fmt: skip
def test_harm_is_named_with_the_labels_it_is_done_to(common: float, rare: float, where: str) -> None:
    table = Table.of()
    others = {
        "other": table.model(common=common, rare=rare, seed=1),
        "weighted": table.model(common, rare, seed=3),
    }
    verdict = said(table.lineup(table.model(common=common, rare=rare), **others))
    assert verdict.headline.endswith(f"CatBoost is more accurate for {where}.")
    use = "CatBoost rather than VIR: its error is lower"
    if common:  # for rare labels it is lower too, or close
        advice = f"For point predictions, use {use} for {where}, and clearly higher in no region."
    else:
        advice = (
            f"For point predictions of rare labels, use {use}. Which of the two is better for less common "
            "labels is undecided."
        )
    assert verdict.advice.startswith(advice)
    assert verdict.status != "good" and "Against CatBoost, the error is higher for" in verdict.text


def test_a_lower_mae_with_a_higher_rmse_is_no_gain() -> None:
    """Errors of nearly all rows are halved, those of a few are very large."""
    table = Table.of(4000, 200, 100)
    mean = table.y + np.where(table.y < 3, 0.5, 1.0) * table.noise
    mean[:4000:40] += 6.0
    rivals = [table.model(seed=s) for s in (1, 2, 3)]
    verdict = said(table.lineup(scored(table.y, mean), *rivals))
    assert "MAE and RMSE disagree on whether the plain network is more accurate" in verdict.headline
    assert f"{NONE}: for common labels one of MAE and RMSE is lower" in verdict.advice
    assert "the error is mixed for common labels (MAE 0.4" in verdict.text and verdict.status != "good"


# -- noise only ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [(2000, 200, 100), (200, 20, 10), (60, 5, 2)])
def test_noise_is_called_noise(rows: tuple[int, int, int]) -> None:
    table = Table.of(*rows)
    verdict = said(table.lineup(table.ignorant(), *(table.ignorant(seed=s) for s in (1, 2, 3))))
    assert verdict.headline == (
        "Nothing was learned: no model has a clearly lower error than always predicting 1."
    )
    assert verdict.advice.startswith("Do not use these predictions") and verdict.status == "bad"


def test_predictions_that_rank_labels_are_not_called_nothing() -> None:
    """Most labels are the constant, so no prediction has a lower absolute error, but some order the rows."""
    y = np.r_[np.ones(60), np.full(40, 5.0)]
    noise = np.random.default_rng(0).normal(0, 0.1, 100)
    ours = scored(y, np.where(y == 1, 4.0, 4.2) + noise)
    verdict = said(Lineup(ours, constant=score_constant(ours, TRAIN)))
    assert verdict.headline == "No model has a clearly lower error than always predicting 1."
    assert "Larger predictions still go with larger labels: the rank correlation is 0." in verdict.text
    assert verdict.advice.startswith("Do not use these predictions as amounts, at most to rank rows")


def test_a_lower_squared_error_is_not_called_noise() -> None:
    """Most labels are the constant, so no prediction has a lower absolute error, but the squares fall."""
    y = np.r_[np.ones(60), np.full(40, 5.0)]
    ours = scored(y, np.where(y == 1, 2.2, 3.4) + np.random.default_rng(0).normal(0, 0.1, 100))
    verdict = said(Lineup(ours, constant=score_constant(ours, TRAIN)))
    assert "No model has a clearly lower MAE than always predicting 1. By RMSE" in verdict.text
    assert "Do not use" not in verdict.advice and "clearly lower error" not in verdict.headline


def test_a_model_that_learned_nothing_beside_one_that_did() -> None:
    table = Table.of()
    verdict = said(table.lineup(table.ignorant()))
    assert "Nothing was learned" not in verdict.text and USE not in verdict.advice
    assert verdict.advice.startswith("For point predictions, use ") and verdict.status == "bad"


# -- too few rows --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rare", "words"),
    [(0, "no test row has a rare label"), (1, "only one test row has a rare label"),
     (5, "only 5 test rows have rare labels")],
)  # fmt: skip
def test_rare_labels_are_not_judged_by_a_handful_of_rows(rare: int, words: str) -> None:
    table = Table.of(400, 0, rare, std=0.3)
    rivals = [table.model(common=1.0, seed=s) for s in (1, 2, 3)]
    verdict = said(table.lineup(table.model(), *rivals))
    assert verdict.headline == f"Rare labels cannot be judged: {words}." and verdict.status == "unknown"
    assert (
        verdict.advice.startswith("Measure on more rows with rare labels") and "use VIR" not in verdict.advice
    )
    assert "Against CatBoost, the error is lower for common labels" in verdict.text  # a fact, no advice


@pytest.mark.parametrize("rows", [1, 12])
def test_nothing_is_judged_by_a_dozen_rows(rows: int) -> None:
    table = Table.of(rows, 0, 0)
    verdict = said(table.lineup(table.model(), *(table.model(common=5.0, seed=s) for s in (1, 2, 3))))
    assert verdict.headline.startswith(f"Nothing can be judged: {rows} test row") and verdict.sentences == ()
    assert verdict.status == "unknown"


def test_without_a_tail_common_labels_decide() -> None:
    table = Table.of(2000, 0, 0, std=0.3)
    flat = LabelBins.from_labels(np.repeat([0.0, 1.0, 2.0], 500))
    rivals = [replace(table.model(common=1.0, seed=s), bins=flat) for s in (1, 2, 3)]
    verdict = said(table.lineup(replace(table.model(), bins=flat), *rivals))
    assert verdict.headline.startswith("The 90% intervals ") and "rare" not in verdict.text
    assert verdict.advice.startswith(
        f"{USE}: on these rows its error is lower than that of the plain network for common"
    )


# -- chance, and sentences that were wrong once ----------------------------------------------------


def test_a_gain_within_chance_is_no_reason_where_trees_are_much_better() -> None:
    """Once: "Use VIR: it is better on common labels and as good on rare labels"."""
    table = Table.of(600, 60, 14)
    ours, plain = table.model(common=0.9, rare=1.0), table.model(common=1.05, rare=1.0, seed=1)
    trees = table.model(seed=2)
    assert 0.9 < ours.error.mean() / plain.error.mean() < 1 < 1.43 < ours.error.mean() / trees.error.mean()
    verdict = said(table.lineup(ours, plain, trees))
    assert USE not in verdict.text and "CatBoost rather than VIR" in verdict.advice
    assert "Against the plain network, the error is undecided for common labels" in verdict.text


def test_a_lower_mae_is_not_better_while_the_rmse_rises() -> None:
    """Once, for labels without a tail: "Use VIR: it is better all the same"."""
    table = Table.of(4000, 0, 0, std=0.3)
    flat = LabelBins.from_labels(np.repeat([0.0, 1.0, 2.0], 500))
    mean = table.y + 0.5 * table.noise
    mean[::40] += 2.0
    verdict = said(table.lineup(scored(table.y, mean, bins=flat), *(table.model(seed=s) for s in (1, 2, 3))))
    assert USE not in verdict.text and verdict.advice.startswith(NONE) and verdict.status != "good"


def test_intervals_wider_than_one_that_ignores_the_columns_are_called_so() -> None:
    """Once: intervals of width 4.58 around labels of which 95% lie within 2."""
    table = Table.of(1000, 100, 30)
    text = said(table.lineup(table.model(reach=2.29), booster=table.model(reach=0.95, seed=1))).text
    assert "their mean width is 4.58" in text and "The constant interval from 0 to 3 is 3 wide" in text
    assert (
        "On average the intervals are no narrower" in text and "Whose intervals to use is undecided" in text
    )


def test_a_gain_within_chance_is_seldom_called_a_gain() -> None:
    """Forty tables where all models are equally good: none is recommended."""
    for seed in range(0, 400, 10):
        table = Table.of(300, 60, 30, seed=seed)
        assert USE not in said(table.lineup(table.model(jitter=0.5))).advice


# -- the range of the labels -----------------------------------------------------------------------


def test_an_end_of_the_labels_without_test_rows_is_mentioned() -> None:
    table = Table.of()

    def only(rows: Any) -> Scored:
        return scored(table.y[rows], table.y[rows])

    assert untested_range(only(table.y >= 0)) == ""
    assert untested_range(only(table.y < 5)) == "No test row is above 4; training labels reach about 5."
    inner = "No test row is below 1; training labels begin near 0."
    assert untested_range(only(table.y > 0)) == inner and inner in judge(Lineup(only(table.y > 0))).text
    both = judge(Lineup(only((table.y > 0) & (table.y < 3)))).text  # also without a tail to judge
    assert inner in both and "No test row is above 2; training labels reach about 5." in both


def test_a_short_end_without_test_rows_is_not_mentioned() -> None:
    y = np.linspace(0, 5, 300)
    fine = LabelBins.from_labels(np.linspace(0, 5.2, 1000), count=100)
    assert untested_range(scored(y, y, bins=fine)) == ""
    wide = LabelBins.from_labels(np.linspace(0, 5.4, 1000), count=100)
    assert "labels reach about 5.4" in untested_range(scored(y, y, bins=wide))
    hollow = LabelBins(wide.edges, np.where(wide.centers > 5, 0, wide.counts))  # bins, but no labels there
    assert untested_range(scored(y, y, bins=hollow)) == ""


def test_the_constant_of_a_verdict_ignores_the_columns() -> None:
    table = Table.of()
    constant = score_constant(table.model(), TRAIN)
    assert (constant.mean == 1).all() and torch.equal(constant.distribution.mean, torch.ones(2300).double())
