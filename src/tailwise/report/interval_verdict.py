"""What a verdict says of intervals: whether they hold for rare labels, how wide they are, and whose to use.

`Tail` has the rows with rare labels that sentences speak of. The labels that two models' intervals contain
are compared by McNemar's exact test at 99%.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tailwise.calibration.interval_scores import wilson_interval
from tailwise.labels.prior import RARE_SHARE, LabelDensity, rarest
from tailwise.report.baselines import Lineup
from tailwise.report.contrasts import CONFIDENCE, CoverageContrast, coverage_contrast, joined
from tailwise.report.formatting import level, number, percent
from tailwise.report.scoring import Scored, paired_difference

MIN_TAIL_ROWS = 10
"""A region with fewer test rows is not judged."""
MIN_SURE_ROWS = 50
"""With fewer test rows the verdict on coverage names their number as a limit."""
SLIGHT = 0.02
"""A shortfall of coverage up to this size is not called under-coverage, even if many rows confirm it."""
NEAR = 0.05
"""Coverage at most this far below the promised level counts as kept."""
WIDE_SHARE = 0.5
"""Intervals wider than this share of the label range are called too wide."""

Soundness = Literal["kept", "over", "undecided", "under"]
INTERVAL_ADVICE: dict[Soundness, str] = {
    "kept": "",
    "over": "",
    "undecided": "Measure on more rows with {0} before you rely on their intervals.",
    "under": "Do not rely on the intervals of {0}: collect more such rows, or ask for a higher coverage.",
}


@dataclass(frozen=True)
class Tail:
    """The test rows with the rarest labels, enough of them to judge by."""

    rows: NDArray[np.bool_]  # (N,)
    where: str  # which bins they lie in
    name: str  # what a sentence calls their labels

    @property
    def n(self) -> int:
        """Number of test rows."""
        return int(self.rows.sum())


def tail_of(scored: Scored) -> Tail | None:
    """Return the few-shot rows; if they are too few to judge, few- and medium-shot rows together.

    A table can be too small for common labels by these counts. Then the tail is the rarest 15% of the test
    labels by their density in training. None if there are still too few to judge.
    """
    few, rarer = scored.mask("few"), scored.region != "many"
    if few.sum() >= MIN_TAIL_ROWS and not few.all():
        return Tail(few, f"where a label bin has fewer than {scored.few} training rows", "rare labels")
    if rarer.sum() >= MIN_TAIL_ROWS and not rarer.all():
        where = f"where a label bin has at most {scored.many} training rows"
        return Tail(rarer, where, "rarer labels")
    if rarer.all() and (least := rarest_rows(scored)).sum() >= MIN_TAIL_ROWS:
        return Tail(least, f"the {level(RARE_SHARE)} with the lowest density in training", "rare labels")
    return None


def rarest_rows(scored: Scored) -> NDArray[np.bool_]:
    """Return which test rows have the rarest labels by their density in training. (N,)"""
    return rarest(scored.y, LabelDensity.from_bins(scored.bins))


def _soundness(hits: int, n: int, promised: float) -> Soundness:
    low, _ = wilson_interval(hits, n)
    if _under_covered(hits, n, promised):
        return "under"
    if low > promised and hits / n > promised + NEAR:
        return "over"
    return "kept" if hits / n >= promised - NEAR else "undecided"


def _under_covered(hits: int, n: int, promised: float) -> bool:
    """Whether coverage falls short of the promised level by more than chance and by more than `SLIGHT`."""
    return wilson_interval(hits, n)[1] < promised and hits / n < promised - SLIGHT


def interval_soundness(scored: Scored, rows: NDArray[np.bool_]) -> Soundness:
    """Return whether the intervals of some rows hold: kept, over, undecided or under."""
    return _soundness(int(scored.inside[rows].sum()), int(rows.sum()), scored.coverage)


def interval_headline(scored: Scored, tail: Tail | None) -> tuple[str, Soundness]:
    """Say whether the intervals hold where it is hardest: for rare labels, or else for all rows."""
    rows = scored.mask("all") if tail is None else tail.rows
    hits, n, promised = int(scored.inside[rows].sum()), int(rows.sum()), level(scored.coverage)
    sound = _soundness(hits, n, scored.coverage)
    whose = "" if tail is None else f" for {tail.name}"
    found = f"{percent(hits / n)} of {n:,} contain the label"
    if sound == "under":
        return f"The {promised} intervals are too narrow{whose}: {found}.", sound
    if sound == "over":
        return f"The {promised} intervals are wider than necessary{whose}: {found}.", sound
    if sound == "kept":
        about = "" if hits / n >= scored.coverage else "about "
        limit = "" if n >= MIN_SURE_ROWS else f", as far as {n} rows can tell"
        return f"The {promised} intervals hold {about}as promised{whose}{limit}: {found}.", sound
    return f"Whether the {promised} intervals hold{whose} is undecided: {found}.", sound


def interval_sentences(lineup: Lineup, tail: Tail | None) -> list[str]:
    """Coverage and width over all rows and in the tail, beside the booster's and a constant interval."""
    scored = lineup.ours
    hits, n = int(scored.inside.sum()), scored.y.size
    short = ", less than promised" if _under_covered(hits, n, scored.coverage) else ""
    text = (
        f"Over all test rows {percent(hits / n)} of the intervals contain the label ({hits:,} of "
        f"{n:,}){short}; their mean width is {number(float(scored.width.mean()))}"
    )
    if tail is not None:
        wide = float(scored.width[tail.rows].mean())
        share = wide / float(scored.bins.edges[-1] - scored.bins.edges[0])
        much = f", {percent(share)} of the whole label range" if share > WIDE_SHARE else ""
        text += f"; for {tail.name}, {tail.where}, {number(wide)}{much}"
    sentences = [f"{text}."]
    for other in (lineup.booster, lineup.constant):
        if other is not None:
            sentences.append(_other_interval(other, tail, constant=other is lineup.constant))
    if tail is not None:
        sentences += [_range_sentence(scored, tail), _pull_sentence(scored, tail)]
    return sentences


def _range_sentence(scored: Scored, tail: Tail) -> str:
    """Say what the true share may be if the rows leave it open."""
    if interval_soundness(scored, tail.rows) != "undecided":
        return ""
    low, high = wilson_interval(int(scored.inside[tail.rows].sum()), tail.n)
    return f"For {tail.name} the true share can be anything from {percent(low)} to {percent(high)}."


def _other_interval(other: Scored, tail: Tail | None, *, constant: bool) -> str:
    """Coverage and width of a baseline's intervals, over all rows and in the tail."""
    if constant:
        ends = f"{other.label(float(other.lower[0]))} to {other.label(float(other.upper[0]))}"
        who = f"The constant interval from {ends} is"
    else:
        who = f"Those of {other.title} are"
    rare = "" if tail is None else f", {percent(other.inside[tail.rows].mean())} for {tail.name}"
    verb = "contains" if constant else "contain"
    share = percent(other.inside.mean())
    return f"{who} {number(float(other.width.mean()))} wide and {verb} {share} of the labels{rare}."


def interval_choice(lineup: Lineup, tail: Tail | None) -> str:
    """Say which intervals to use, unless it is left to chance.

    Of intervals that hold, the clearly narrower ones are preferred. If those of only one model hold, they
    must also contain clearly more labels.
    """
    scored, constant, booster = lineup.ours, lineup.constant, lineup.booster
    rows = scored.mask("all") if tail is None else tail.rows

    def holds(s: Scored) -> bool:
        return all(interval_soundness(s, part) in ("kept", "over") for part in (s.mask("all"), rows))

    for other in (constant, booster):
        if other is not None and holds(other):
            found = coverage_contrast(scored, other, rows)
            name = "constant ones" if other is constant else f"those of {other.title}"
            if found.width.worse:
                return f"For intervals, {name} will do: {_narrower(*found.widths[::-1])}"
    choice = ""
    if booster is not None:
        found, ours, theirs = coverage_contrast(scored, booster, rows), holds(scored), holds(booster)
        if ours and theirs and found.width.better:
            choice = f"For intervals, use those of {scored.title}: {_narrower(*found.widths)}"
        elif ours != theirs and (found.undecided or ours == (found.outcome == "better")):
            choice = _only_one_holds(found, scored, booster, tail)
    if constant is not None and scored.width.mean() >= constant.width.mean():
        narrow = f"On average the intervals are no narrower than one that ignores the {lineup.inputs}."
        return f"{choice} {narrow}".strip()
    return choice


def _narrower(width: str, wider: str) -> str:
    return f"they are {width} wide on average, not {wider}, and as far as these rows show they hold too."


def _only_one_holds(found: CoverageContrast, ours: Scored, theirs: Scored, tail: Tail | None) -> str:
    """Recommend the intervals that hold if they contain clearly more labels; give the widths of both."""
    shares = [
        f"{percent(hits / found.n)} of those of {s.title}"
        for hits, s in zip(found.hits, (ours, theirs), strict=True)
    ]
    where = "" if tail is None else f" for {tail.name}"
    widths = "their mean widths are {} and {}.".format(*found.widths)
    covered = f"{joined(shares)} contain the label{where}"
    if found.undecided:
        chance = f"which can be chance on {found.n:,} rows"
        return f"Whose intervals to use is undecided: {covered}, {chance}; {widths}"
    better = ours if found.outcome == "better" else theirs
    return f"For intervals, use those of {better.title}: {covered}; {widths}"


def _pull_sentence(scored: Scored, tail: Tail) -> str:
    """Say how far rare labels are predicted towards the common ones, if this is clear."""
    away = np.sign(scored.y - scored.bins.location) * (scored.y - scored.mean)
    pull = paired_difference(away, np.zeros_like(away), tail.rows, CONFIDENCE)
    if pull.undecided or pull.value <= 0:
        return ""
    return f"Predictions of {tail.name} are pulled towards common ones, by {number(pull.value)} on average."
