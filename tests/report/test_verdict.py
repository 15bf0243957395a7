"""A verdict says what the test rows show, and no more."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tailwise.core.distributions import Normal
from tailwise.core.labels import LabelBins
from tailwise.report.formatting import number
from tailwise.report.scoring import LEVELS, Scored, paired_difference
from tailwise.report.verdict import judge, tail_of, untested_range

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


def test_under_coverage_comes_with_its_count() -> None:
    verdict = judge(scored(0.5, 3.0, tail_half=3.0))
    inside = int(scored(0.5, 3.0).inside[-40:].sum())
    assert verdict.headline.startswith("The tail is under-covered")
    assert (
        f"({inside} of 40 test rows)" in verdict.headline
        and "fewer than 20 training rows" in verdict.headline
    )
    assert verdict.status == "bad" and "Do not rely" in verdict.advice


def test_coverage_is_called_kept_only_as_far_as_the_rows_go() -> None:
    s = scored(0.5, 1.0)
    lower = s.lower.copy()
    lower[-4:] = 99.0  # 36 of 40 hold
    verdict = judge(replace(s, lower=lower))
    assert verdict.headline.startswith("The tail is covered as promised, as far as 40 rows can tell: 90%")
    few = _only(s, np.arange(s.y.size) >= 260)  # ten rare rows, eight of which hold
    lower = few.lower.copy()
    lower[:2] = 99.0
    verdict = judge(replace(few, lower=lower))
    assert verdict.headline.startswith("Whether the tail is covered is undecided: 80%")
    assert "anything from 49% to 94%." in verdict.headline and verdict.status == "mixed"


def test_gain_cost_and_choice_follow_the_figures() -> None:
    ours, base = scored(0.6, 1.0), scored(0.4, 2.0, title="Vanilla")
    verdict = judge(ours, base)
    assert "lower (±" in verdict.text and "Over all test rows the mean absolute error of VIR" in verdict.text
    assert "Use VIR if rare labels matter" in verdict.advice
    word = "higher" if ours.error.mean() > base.error.mean() else "lower"
    assert f"{word} than that of Vanilla (" in verdict.text
    assert "Use Vanilla: VIR is worse" in judge(scored(0.4, 2.0), scored(0.4, 1.0, title="Vanilla")).advice
    dear, cheap = scored(0.8, 1.0), scored(0.4, 1.0, title="Vanilla")
    figures = " against ".join(number(float(s.error[s.y < 4].mean())) for s in (dear, cheap))
    advice = judge(dear, cheap).advice
    assert f"VIR is not clearly better on rare labels and worse on all others ({figures})." in advice
    assert (
        "Use VIR: it is better on common" in judge(scored(0.2, 1.0), scored(0.4, 1.0, title="Vanilla")).advice
    )
    same = judge(scored(0.4, 1.0), scored(0.4, 1.0, title="Vanilla"))
    assert "Either will do" in same.advice
    assert "VIR and Vanilla have the same mean absolute error" in same.text
    assert "Which is more accurate for rare labels, VIR or Vanilla, is undecided" in same.text


def test_cost_names_the_region_it_comes_from() -> None:
    verdict = judge(scored(0.9, 1.0), scored(0.4, 2.0, title="Vanilla"))
    assert "higher than that of Vanilla" in verdict.text
    assert "The largest part comes from many-shot labels, 74% of the test rows:" in verdict.text


def test_a_single_region_is_not_named_as_the_cause() -> None:
    s, base = scored(0.5, 1.0), scored(0.9, 1.0, title="Vanilla")
    text = judge(_only(s, s.y < 2), _only(base, s.y < 2)).text
    assert "lower than that of Vanilla" in text and "largest part" not in text


def test_a_difference_within_its_error_is_undecided() -> None:
    ours = scored(0.5, 1.0)
    jitter = np.random.default_rng(1).normal(0, 0.1, ours.y.size)
    mean = torch.from_numpy(ours.mean + jitter)
    base = replace(ours, title="Vanilla", distribution=Normal(mean, 1.0))
    overall = paired_difference(ours.error, base.error, ours.mask("all"))
    assert overall.undecided and overall.value != 0
    sentence = next(s for s in judge(ours, base).sentences if s.startswith("Over all"))
    assert sentence.endswith(f"within its error of ±\u00a0{number(overall.half)}: undecided.")


def test_gains_on_common_labels_are_mentioned_even_if_rare_ones_lose() -> None:
    verdict = judge(scored(0.2, 2.0), scored(0.4, 1.0, title="Vanilla"))
    assert (
        "Use Vanilla if rare labels matter as much as common ones, VIR if only common ones do."
        in verdict.advice
    )
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
    assert "For the uncertainty of rare labels, VIR is the better one." in said
    worse = judge(replace(base, distribution=Normal(mean, wide), title="VIR"), replace(ours, title="Vanilla"))
    assert "fits all test rows together worse" in worse.text
    assert worse.advice.startswith("Use Vanilla: VIR is not clearly more accurate, and its uncertainty")


def test_without_rare_rows_the_tail_is_not_judged() -> None:
    s = scored(0.5, 1.0)
    verdict = judge(_only(s, s.y < 3), _only(replace(s, title="Vanilla"), s.y < 3))
    assert verdict.headline.startswith("The tail cannot be judged") and verdict.status == "unknown"
    flat = LabelBins.from_labels(np.repeat([0.0, 1.0], 500))
    common = replace(_only(s, s.y < 2), bins=flat)
    verdict = judge(common)
    assert verdict.headline.startswith("There is no tail") and verdict.status == "good"
    narrow = replace(common, upper=common.lower + 0.1)
    verdict = judge(narrow)
    assert "less than promised" in verdict.text and "Do not rely" in verdict.advice
    assert verdict.status == "bad"
    worse = replace(_only(scored(0.9, 1.0, title="Vanilla"), s.y < 2), bins=flat)
    assert judge(common, worse).advice == "Use VIR: it is better all the same."
    assert judge(worse, common).advice.startswith("Plain training will do.")


def test_the_number_of_rare_rows_is_worded_for_none_one_and_more() -> None:
    s = scored(0.5, 1.0)
    assert "no test row has a rare label." in judge(_only(s, s.y < 3)).headline
    one = np.arange(s.y.size) <= 200
    assert "only one test row has a rare label." in judge(_only(s, one)).headline
    assert "only 5 test rows have rare labels." in judge(_only(s, np.arange(s.y.size) < 205)).headline


def test_without_common_rows_nothing_is_said_about_them() -> None:
    s, base = scored(0.5, 1.0), scored(0.5, 2.0, title="Vanilla")
    verdict = judge(_only(s, s.y >= 4), _only(base, s.y >= 4))
    assert verdict.advice.startswith(
        "Use VIR: it is better on rare labels, and there are no other test rows."
    )
    assert "elsewhere" not in verdict.text and "nan" not in verdict.text


def test_a_high_coverage_is_not_rounded_to_certainty() -> None:
    said = judge(scored(0.5, 1.0, coverage=0.995)).headline
    assert "of the 99.5% intervals" in said


def test_wide_intervals_and_pulled_predictions_are_mentioned() -> None:
    verdict = judge(scored(0.5, 1.5, tail_half=4.0))
    wide = (
        "8 wide on average, 133% of the whole label range, too wide to be of much use; elsewhere they are 2"
    )
    assert f"Intervals in the tail are {wide} wide." in verdict.text
    assert "pulled towards common ones" in verdict.text
    assert set(verdict.to_dict()) == {"status", "headline", "sentences", "advice"}


def test_a_small_change_shows_in_both_of_its_ends() -> None:
    ours, base = scored(0.5, 1.0), scored(0.5, 1.0, title="Vanilla")
    far = replace(base, distribution=Normal(torch.from_numpy(base.mean + 423.35), 1.0))
    near = replace(ours, distribution=Normal(torch.from_numpy(ours.mean + 423.35 - 0.6), 1.0))
    sentence = next(s for s in judge(near, far).sentences if s.startswith("Over all"))
    ends = [number(float(s.error.mean()), 4) for s in (far, near)]
    assert (
        ends[0] != ends[1]
        and f"0.6 lower than that of Vanilla ({ends[1]} against {ends[0]}, 0.1%)" in sentence
    )


def test_an_end_of_the_labels_without_test_rows_is_mentioned() -> None:
    s = scored(0.5, 1.0)
    assert untested_range(s) == "" and "No test row" not in judge(s).text
    assert untested_range(_only(s, s.y < 5)) == "No test row is above 4; training labels reach about 5."
    inner = "No test row is below 1; training labels begin near 0."
    assert untested_range(_only(s, s.y > 0)) == inner and inner in judge(_only(s, s.y > 0)).text
    both = judge(_only(s, (s.y > 0) & (s.y < 3))).text  # also without a tail to judge
    assert inner in both and "No test row is above 1; training labels reach about 5." in both


def test_a_short_end_without_test_rows_is_not_mentioned() -> None:
    fine = LabelBins.from_labels(np.linspace(0, 5.2, 1000), count=100)
    assert untested_range(scored(0.5, 1.0, bins=fine)) == ""
    wide = LabelBins.from_labels(np.linspace(0, 5.4, 1000), count=100)
    assert "labels reach about 5.37" in untested_range(scored(0.5, 1.0, bins=wide))
    hollow = LabelBins(wide.edges, np.where(wide.centers > 5, 0, wide.counts))  # bins, but no labels there
    assert untested_range(scored(0.5, 1.0, bins=hollow)) == ""


def test_a_shortfall_within_chance_is_called_about_as_promised() -> None:
    s = scored(0.5, 1.0)
    lower = s.lower.copy()
    lower[-5:] = 99.0  # 35 of 40 contain the label, 88%
    verdict = judge(replace(s, lower=lower))
    assert verdict.headline.startswith(
        "The tail is covered about as promised, as far as 40 rows can tell: 88%"
    )
    assert verdict.status == "good"


def test_over_coverage_is_mixed() -> None:
    y = np.repeat([0.0, 4.0], [50, 200])
    wide = scored(0.5, 1.0)
    mean = torch.from_numpy(y)
    everything = replace(
        wide, y=y, distribution=Normal(mean, 1.0), uncalibrated=Normal(mean, 1.0), lower=y - 1, upper=y + 1
    )
    verdict = judge(everything)
    assert verdict.headline.startswith("The tail is over-covered") and verdict.status == "mixed"
    assert verdict.advice == "Intervals in the tail are safe but wide."


def test_a_model_chosen_for_its_accuracy_does_not_hide_that_its_uncertainty_fits_worse() -> None:
    ours, base = scored(0.2, 1.0), scored(0.4, 2.0, title="Vanilla")
    vague = replace(ours, distribution=Normal(torch.from_numpy(ours.mean), 1e6))
    advice = judge(vague, base).advice
    assert advice.startswith("Use VIR: it is better on rare labels and better on common ones too.")
    assert "For the uncertainty of rare labels, Vanilla is the better one." in advice
