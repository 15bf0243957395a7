"""The verdict says what the rows show, and no more."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import ttest_rel

from tailwise.core.distributions import Normal
from tailwise.core.labels import LabelBins
from tailwise.report.formatting import number
from tailwise.report.formatting import pair as apart
from tailwise.report.scoring import LEVELS, Scored, compared, wilson
from tailwise.report.verdict import judge, tail_of, untested

TRAIN = np.repeat(np.arange(6.0), [300, 200, 120, 60, 10, 5])


def scored(
    error: float, tail_error: float, half: float = 1.0, tail_half: float = 3.0, **changes: Any
) -> Scored:
    """Test rows whose errors and intervals are known: 200 common, 30 medium and 40 rare labels."""
    y = np.repeat([0.0, 1.0, 3.0, 4.0, 5.0], [100, 100, 30, 30, 10])
    rare = y >= 4
    rng = np.random.default_rng(0)
    off = np.where(rare, tail_error, error) * rng.uniform(0.5, 1.5, y.size)
    mean = np.where(y > 1, y - off, y + off)
    reach = np.where(rare, tail_half, half)
    made = Scored(
        title="VIR",
        y=y,
        distribution=Normal(torch.from_numpy(mean), 1.0),
        uncalibrated=Normal(torch.from_numpy(mean), 1.0),
        bins=LabelBins.from_labels(TRAIN),
        lower=mean - reach,
        upper=mean + reach,
        covered={level: np.ones(y.size, bool) for level in LEVELS},
    )
    return replace(made, **changes)


def test_wilson_agrees_with_the_textbook() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    low, high = wilson(81, 263)
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)  # Newcombe 1998, method 3


def test_pairs_of_errors_are_compared_row_by_row() -> None:
    rows = np.array([True, True, True, False])
    change = compared(np.array([1.0, 2.0, 3.0, 99.0]), np.array([2.0, 3.0, 5.0, 0.0]), rows)
    assert (change.ours, change.n) == (2.0, 3)
    assert change.difference == pytest.approx(-4 / 3)
    textbook = ttest_rel([1.0, 2.0, 3.0], [2.0, 3.0, 5.0])
    assert change.difference + change.half == pytest.approx(textbook.confidence_interval(0.95).high)
    assert not change.clear and textbook.pvalue > 0.05  # three rows are few
    many = compared(np.tile([1.0, 2.0, 3.0], 9), np.tile([2.0, 3.0, 5.0], 9), np.ones(27, bool))
    assert many.clear
    one = compared(np.array([1.0]), np.array([9.0]), np.ones(1, bool))
    assert one.difference == -8 and not one.clear


def test_the_tail_is_what_can_be_judged() -> None:
    s = scored(0.5, 1.0)
    assert tail_of(s) is not None and tail_of(s).n == 40  # type: ignore[union-attr]
    widened = tail_of(_only(s, s.y < 4))
    assert widened is not None and widened.n == 30 and widened.name == "rarer labels"
    assert tail_of(_only(s, s.y < 3)) is None


def _only(s: Scored, rows: Any) -> Scored:
    covered = {level: mask[rows] for level, mask in s.covered.items()}
    return replace(
        s, y=s.y[rows], distribution=s.distribution[torch.from_numpy(rows)], lower=s.lower[rows],
        upper=s.upper[rows], covered=covered,
    )  # fmt: skip


def test_under_coverage_is_said_with_its_count() -> None:
    verdict = judge(scored(0.5, 3.0, tail_half=3.0))
    inside = int(scored(0.5, 3.0).inside[-40:].sum())
    assert verdict.headline.startswith("The tail is under-covered")
    assert (
        f"({inside} of 40 test rows)" in verdict.headline
        and "fewer than 20 training rows" in verdict.headline
    )
    assert verdict.status == "bad" and "Do not rely" in verdict.advice


def test_kept_promises_are_praised_no_further_than_the_rows_go() -> None:
    s = scored(0.5, 1.0)
    lower = s.lower.copy()
    lower[-4:] = 99.0  # 36 of 40 hold
    verdict = judge(replace(s, lower=lower))
    assert verdict.headline.startswith("The tail is covered as promised, as far as 40 rows can tell: 90%")
    few = _only(s, np.arange(s.y.size) >= 260)  # ten rare rows, eight of which hold
    lower = few.lower.copy()
    lower[:2] = 99.0
    verdict = judge(replace(few, lower=lower))
    assert "is open" in verdict.headline and "80%" in verdict.headline


def test_gain_cost_and_choice_follow_the_figures() -> None:
    ours, base = scored(0.6, 1.0), scored(0.4, 2.0, title="Vanilla")
    verdict = judge(ours, base)
    assert "is 1 lower" in verdict.text or "lower (±" in verdict.text
    assert "Overall mean absolute error" in verdict.text
    assert "Use VIR if rare labels matter" in verdict.advice
    share = float((ours.error - base.error).mean())
    assert ("rose" if share > 0 else "fell") in verdict.text
    assert "Use Vanilla: VIR is worse" in judge(scored(0.4, 2.0), scored(0.4, 1.0, title="Vanilla")).advice
    dear, cheap = scored(0.8, 1.0), scored(0.4, 1.0, title="Vanilla")
    lost = " to ".join(number(float(s.error[s.y < 4].mean())) for s in (cheap, dear))
    told = judge(dear, cheap).advice
    assert f"gains nothing clear on rare labels and loses on all others together ({lost})." in told
    assert (
        "Use VIR: it is better on common" in judge(scored(0.2, 1.0), scored(0.4, 1.0, title="Vanilla")).advice
    )
    same = judge(scored(0.4, 1.0), scored(0.4, 1.0, title="Vanilla"))
    assert "Either will do" in same.advice and "stays at" in same.text


def test_cost_names_the_region_it_comes_from() -> None:
    verdict = judge(scored(0.9, 1.0), scored(0.4, 2.0, title="Vanilla"))
    assert "rose" in verdict.text and "because many-shot labels, 74% of the test rows" in verdict.text


def test_a_region_that_is_all_there_is_gives_no_cause() -> None:
    s, base = scored(0.5, 1.0), scored(0.9, 1.0, title="Vanilla")
    told = judge(_only(s, s.y < 2), _only(base, s.y < 2)).text
    assert "Overall mean absolute error fell by" in told and "because" not in told


def test_a_change_that_chance_explains_is_given_no_cause() -> None:
    ours = scored(0.5, 1.0)
    jitter = np.random.default_rng(1).normal(0, 0.1, ours.y.size)
    mean = torch.from_numpy(ours.mean + jitter)
    base = replace(ours, title="Vanilla", distribution=Normal(mean, 1.0))
    overall = compared(ours.error, base.error, ours.rows("all"))
    assert not overall.clear and overall.difference != 0
    told = next(s for s in judge(ours, base).sentences if s.startswith("Overall"))
    assert told.endswith("no more than chance in the test rows would explain.") and "because" not in told


def test_gains_on_common_labels_are_told_even_where_rare_ones_lose() -> None:
    verdict = judge(scored(0.2, 2.0), scored(0.4, 1.0, title="Vanilla"))
    assert "Use Vanilla if rare labels matter" in verdict.advice and "better on common ones" in verdict.advice
    assert verdict.status == "mixed"
    verdict = judge(scored(0.2, 1.0), scored(0.4, 2.0, title="Vanilla"))
    assert "Use VIR: it is better on rare labels and better on common ones too." in verdict.advice


def test_uncertainty_is_compared_in_the_tail_or_else_over_all_rows() -> None:
    ours, base = scored(0.5, 1.0), scored(0.5, 1.0, title="Vanilla")
    wide = torch.where(torch.from_numpy(ours.y >= 4), 1.0, 9.0)
    mean = torch.from_numpy(base.mean)
    said = judge(ours, replace(base, distribution=Normal(mean, wide))).text
    assert "fits all test rows together better than that of Vanilla" in said
    assert "fits rare labels" not in said
    assert "For the uncertainty as a whole, VIR is the better one." in said
    said = judge(ours, replace(base, distribution=Normal(mean, 10 - wide))).text
    assert "fits rare labels better than that of Vanilla" in said and "all test rows together" not in said
    assert "For how sure to be of rare labels, VIR is the better one." in said
    worse = judge(replace(base, distribution=Normal(mean, wide), title="VIR"), replace(ours, title="Vanilla"))
    assert "fits all test rows together worse" in worse.text
    assert worse.advice.startswith("Use Vanilla: VIR gains nothing clear here, and its uncertainty fits")


def test_without_rare_rows_nothing_is_claimed_of_them() -> None:
    s = scored(0.5, 1.0)
    verdict = judge(_only(s, s.y < 3), _only(replace(s, title="Vanilla"), s.y < 3))
    assert verdict.headline.startswith("The tail cannot be judged") and verdict.status == "unknown"
    flat = LabelBins.from_labels(np.repeat([0.0, 1.0], 500))
    common = replace(_only(s, s.y < 2), bins=flat)
    verdict = judge(common)
    assert verdict.headline.startswith("There is no tail") and verdict.status == "good"
    narrow = replace(common, upper=common.lower + 0.1)
    verdict = judge(narrow)
    assert "fewer than promised" in verdict.text and "Do not rely" in verdict.advice
    assert verdict.status == "bad"
    worse = replace(_only(scored(0.9, 1.0, title="Vanilla"), s.y < 2), bins=flat)
    assert judge(common, worse).advice == "Use VIR: it is better all the same."
    assert judge(worse, common).advice.startswith("Plain training will do.")


def test_one_rare_row_or_none_is_told_in_proper_words() -> None:
    s = scored(0.5, 1.0)
    assert "no test row has a rare label." in judge(_only(s, s.y < 3)).headline
    one = np.arange(s.y.size) <= 200
    assert "only one test row has a rare label." in judge(_only(s, one)).headline
    assert "only 5 test rows have rare labels." in judge(_only(s, np.arange(s.y.size) < 205)).headline


def test_nothing_is_said_of_common_labels_where_there_are_none() -> None:
    s, base = scored(0.5, 1.0), scored(0.5, 2.0, title="Vanilla")
    verdict = judge(_only(s, s.y >= 4), _only(base, s.y >= 4))
    assert verdict.advice.startswith("Use VIR: it is better on rare labels, which are all there are here.")
    assert "elsewhere" not in verdict.text and "nan" not in verdict.text


def test_a_high_coverage_is_not_rounded_to_certainty() -> None:
    said = judge(scored(0.5, 1.0, coverage=0.995)).headline
    assert "of the 99.5% intervals" in said


def test_intervals_too_wide_are_called_so_and_pull_is_measured() -> None:
    verdict = judge(scored(0.5, 1.5, tail_half=4.0))
    assert "too wide to be of much use" in verdict.text
    assert "pulled towards common ones" in verdict.text
    assert set(verdict.to_dict()) == {"status", "headline", "sentences", "advice"}


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.12345, "0.123"), (99.96, "100"), (123456.7, "123,457"), (float("nan"), "nan")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("pair", "texts"),
    [
        ((1.38, 1.43), ("1.38", "1.43")),
        ((423.35, 422.75), ("423.4", "422.8")),
        ((423.0, 422.997), ("423.000", "422.997")),
        ((0.12341, 0.12344), ("0.12341", "0.12344")),
        ((423.5, 422.9), ("423.5", "422.9")),  # 424 to 423 would be a difference of 1
        ((12345.0, 12399.0), ("12,345", "12,399")),
        ((5e9, 5e9 + 1), ("5000000000", "5000000001")),
        ((0.5, 0.5), ("0.5", "0.5")),
        ((float("nan"), float("nan")), ("nan", "nan")),
    ],
)
def test_figures_that_differ_are_not_printed_alike(pair: tuple[float, float], texts: tuple[str, str]) -> None:
    assert apart(*pair) == texts


def test_a_small_change_shows_in_both_of_its_ends() -> None:
    ours, base = scored(0.5, 1.0), scored(0.5, 1.0, title="Vanilla")
    far = replace(base, distribution=Normal(torch.from_numpy(base.mean + 423.35), 1.0))
    near = replace(ours, distribution=Normal(torch.from_numpy(ours.mean + 423.35 - 0.6), 1.0))
    told = next(s for s in judge(near, far).sentences if s.startswith("Overall"))
    ends = [number(float(s.error.mean()), 4) for s in (far, near)]
    assert ends[0] != ends[1] and f"fell by 0.6 ({ends[0]} to {ends[1]}, 0.1%)" in told


def test_an_end_of_the_labels_without_a_test_row_is_told() -> None:
    s = scored(0.5, 1.0)
    assert untested(s) == "" and "No test row" not in judge(s).text
    assert untested(_only(s, s.y < 5)) == "No test row is above 4; training labels reach about 5."
    inner = "No test row is below 1; training labels begin near 0."
    assert untested(_only(s, s.y > 0)) == inner and inner in judge(_only(s, s.y > 0)).text
    both = judge(_only(s, (s.y > 0) & (s.y < 3))).text  # no tail to judge: told all the same
    assert inner in both and "No test row is above 1; training labels reach about 5." in both


def test_an_end_that_hardly_matters_is_not_told() -> None:
    fine = LabelBins.from_labels(np.linspace(0, 5.2, 1000), count=100)
    assert untested(scored(0.5, 1.0, bins=fine)) == ""
    wide = LabelBins.from_labels(np.linspace(0, 5.4, 1000), count=100)
    assert "labels reach about 5.37" in untested(scored(0.5, 1.0, bins=wide))
    hollow = LabelBins(wide.edges, np.where(wide.centers > 5, 0, wide.counts))  # bins, but no labels there
    assert untested(scored(0.5, 1.0, bins=hollow)) == ""
