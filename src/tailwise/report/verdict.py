"""A verdict: do the intervals hold, what does the model gain and cost, and should it be used.

Every fact rests on test rows that no model has seen. A model is recommended only if each baseline has a
clearly higher error for some labels, and none a clearly lower one for others; its intervals only if their
interval score beats that of a constant interval, and no baseline's is lower beyond chance. `judge` returns
facts; the template ``verdict.txt`` says them.

Two figures differ only if the 99% interval of their paired difference excludes zero: a page compares several
baselines in three regions by three measures, and at 95% one of them would often differ by chance. Intervals
are compared by Winkler's interval score, which judges width and coverage together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tailwise.calibration.interval_scores import wilson_interval
from tailwise.report.scores import Floats, Lineup, Scores
from tailwise.report.wording import REGION_WORDS, say, sentences

MIN_TEST_ROWS = 20
"""With fewer test rows nothing is judged."""
MIN_TAIL_ROWS = 10
"""A region with fewer test rows is not judged."""
SLIGHT = 0.02
"""A shortfall of coverage up to this size is not called under-coverage, even if many rows confirm it."""
NEAR = 0.05
"""Coverage at most this far below the promised level counts as kept."""
RANKED = 0.1
"""A smaller rank correlation of predictions and labels is not mentioned."""
CHANCE = 0.01
"""A rank correlation with a larger p-value is not mentioned either."""
UNTESTED = 0.05
"""An end of the label range without test rows is mentioned if it is a larger share of the range."""

Kind = Literal["few rows", "no tail", "nothing learned", "judged"]
Soundness = Literal["kept", "over", "undecided", "under"]
Status = Literal["good", "mixed", "bad", "unknown"]


# -- differences -----------------------------------------------------------------------------------

CONFIDENCE = 0.99
"""Of the interval of a difference between two models; the difference is clear if zero lies outside."""
CLOSE = 0.05
"""Two models are close where the interval of their difference allows no more than this share."""
TINY = 1e-300

Outcome = Literal["better", "worse", "mixed", "undecided"]


@dataclass(frozen=True)
class Difference:
    """Losses of two models on the same rows; `half` is the half-width of the difference's interval."""

    ours: float
    theirs: float
    half: float
    n: int

    @property
    def value(self) -> float:
        """Ours minus theirs."""
        return self.ours - self.theirs

    @property
    def outcome(self) -> Outcome:
        """Better or worse if our loss is lower or higher by more than the error of the difference."""
        if self.n > 1 and abs(self.value) > self.half:
            return "better" if self.value < 0 else "worse"
        return "undecided"

    @property
    def bound(self) -> float:
        """The largest difference that its interval contains, as a share of their loss."""
        return (abs(self.value) + self.half) / self.theirs if self.theirs > 0 else math.inf


def mean_difference(ours: Floats, theirs: Floats, confidence: float = CONFIDENCE) -> Difference:
    """Compare the mean losses of two models row by row, with Student's t interval. (n,) each"""
    means = (float(ours.mean()), float(theirs.mean())) if ours.size else (math.nan, math.nan)
    return _difference(*means, ours - theirs, confidence)


def rmse_difference(ours: Floats, theirs: Floats, confidence: float = CONFIDENCE) -> Difference:
    """Compare the root mean square errors of two models row by row. Absolute errors: (n,) each

    The interval is the one that a paired bootstrap over the rows tends to, without its random numbers: each
    row adds ``e**2 / (2 RMSE)`` to the root of the mean.
    """
    roots = [math.sqrt((error**2).mean()) if error.size else math.nan for error in (ours, theirs)]
    parts = [e**2 / (2 * max(root, TINY)) for e, root in zip((ours, theirs), roots, strict=True)]
    return _difference(roots[0], roots[1], parts[0] - parts[1], confidence)


def _difference(ours: float, theirs: float, rows: Floats, confidence: float) -> Difference:
    """Return a difference whose error is that of the mean over rows. (n,)"""
    n, half = rows.size, math.inf if rows.size else math.nan
    if n > 1:
        half = float(stats.t.ppf((1 + confidence) / 2, n - 1) * stats.sem(rows))
    return Difference(ours, theirs, half, n)


@dataclass(frozen=True)
class Contrast:
    """Mean absolute error, root mean square error and interval score of two models in one region."""

    region: str
    mae: Difference
    rmse: Difference
    intervals: Difference

    @property
    def outcome(self) -> Outcome:
        """Better if one error is clearly lower and the other not higher at all; worse likewise.

        Mixed if a clear difference of one measure meets a difference of the other in the other direction.
        """
        pair = (self.mae, self.rmse)
        if any(d.outcome == "better" for d in pair):
            return "better" if all(d.value <= 0 for d in pair) else "mixed"
        if any(d.outcome == "worse" for d in pair):
            return "worse" if all(d.value >= 0 for d in pair) else "mixed"
        return "undecided"

    @property
    def bound(self) -> float:
        """The largest difference that the intervals of both measures allow, as a share."""
        return max(self.mae.bound, self.rmse.bound)


def contrast(ours: Scores, theirs: Scores, region: str, rows: NDArray[np.bool_] | None = None) -> Contrast:
    """Compare two models on the test rows of a region, or on those given. (N,)"""
    rows = ours.mask(region) if rows is None else rows
    errors = ours.error[rows], theirs.error[rows]
    intervals = mean_difference(ours.interval_score[rows], theirs.interval_score[rows])
    return Contrast(region, mean_difference(*errors), rmse_difference(*errors), intervals)


@dataclass(frozen=True)
class Standing:
    """How a model compares with one baseline, over the regions with enough test rows."""

    rival: str
    contrasts: tuple[Contrast, ...]
    overall: Contrast
    """Over all rows."""

    @property
    def parts(self) -> tuple[Contrast, ...]:
        """All rows and, where there are several with enough test rows, the regions."""
        return (self.overall, *self.contrasts) if len(self.contrasts) > 1 else (self.overall,)

    def intervals(self, outcome: Outcome) -> list[str]:
        """Return where the interval scores have an outcome: all, or regions."""
        return [part.region for part in self.parts if part.intervals.outcome == outcome]

    def regions(self, outcome: Outcome) -> list[str]:
        """Return the regions where the errors have an outcome."""
        return [contrast.region for contrast in self.contrasts if contrast.outcome == outcome]

    @property
    def ahead(self) -> bool:
        """Whether the model is clearly better in some region, and neither worse nor mixed in any."""
        return bool(self.regions("better")) and not self.regions("worse") + self.regions("mixed")

    @property
    def close(self) -> bool:
        """Whether the errors of both models differ by at most `CLOSE` in every region."""
        near = all(part.outcome == "undecided" and part.bound <= CLOSE for part in self.contrasts)
        return bool(self.contrasts) and near


def standings_of(lineup: Lineup) -> tuple[Standing, ...]:
    """Compare the model with each baseline, in each region with enough test rows."""
    ours = lineup.ours
    regions = [region for region in ours.regions if ours.mask(region).sum() >= MIN_TAIL_ROWS]
    return tuple(
        Standing(
            baseline.title,
            tuple(contrast(ours, baseline, region) for region in regions),
            contrast(ours, baseline, "all"),
        )
        for baseline in lineup.baselines.values()
    )


# -- rare labels, and whether intervals hold ---------------------------------------------------------


@dataclass(frozen=True)
class Tail:
    """The test rows with the rarest labels, enough of them to judge by."""

    rows: NDArray[np.bool_]  # (N,)
    by: Literal["few", "rarer", "density"]
    """Few-shot rows, few- and medium-shot rows, or the rows with the lowest density in training."""
    name: str = "rare labels"
    """What a sentence calls their labels."""


def tail_of(scores: Scores) -> Tail | None:
    """Return the few-shot rows; if they are too few to judge, few- and medium-shot rows together.

    A table can be too small for common labels by these counts. Then the tail is the rarest 15% of the test
    labels by their density in training. None if there are still too few to judge.
    """
    few, rarer = scores.mask("few"), scores.region != "many"
    if few.sum() >= MIN_TAIL_ROWS and not few.all():
        return Tail(few, "few")
    if rarer.sum() >= MIN_TAIL_ROWS and not rarer.all():
        return Tail(rarer, "rarer", "rarer labels" if few.any() else REGION_WORDS["medium"])
    if rarer.all() and scores.rare.sum() >= MIN_TAIL_ROWS:
        return Tail(scores.rare, "density")
    return None


@dataclass(frozen=True)
class Coverage:
    """How many intervals of some rows contain the label, beside the promised share."""

    hits: int
    n: int
    promised: float

    @classmethod
    def of(cls, scores: Scores, rows: NDArray[np.bool_]) -> Coverage:
        """Count the intervals of some rows of a model. (N,)"""
        return cls(int(scores.inside[rows].sum()), int(rows.sum()), scores.coverage)

    @property
    def share(self) -> float:
        """The share of intervals that contain the label."""
        return self.hits / self.n

    @property
    def range(self) -> tuple[float, float]:
        """The 95% range of the share."""
        return wilson_interval(self.hits, self.n)

    @property
    def short(self) -> bool:
        """Whether the share falls short of the promised one by more than chance and by more than `SLIGHT`."""
        return self.range[1] < self.promised and self.share < self.promised - SLIGHT

    @property
    def soundness(self) -> Soundness:
        """Whether the intervals hold: kept, over, undecided or under."""
        if self.short:
            return "under"
        if self.range[0] > self.promised and self.share > self.promised + NEAR:
            return "over"
        return "kept" if self.share >= self.promised - NEAR else "undecided"


# -- the facts ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Points:
    """Which model to use for point predictions.

    `kind` is ``"beaten"`` if a baseline is more accurate for some labels, ``"ahead"`` if the model is more
    accurate than each for some, ``"close"`` if a baseline's errors differ by little, else ``"open"``.
    """

    kind: Literal["unjudged", "beaten", "ahead", "close", "open"] = "unjudged"
    won: Sequence[str] = ()
    """Regions in which the model is more accurate than every baseline."""
    lost: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Regions in which a baseline is more accurate, by baseline."""
    standings: tuple[Standing, ...] = ()
    """Those that decide."""

    @property
    def disagree(self) -> bool:
        """Whether MAE and RMSE disagree somewhere."""
        return any(standing.regions("mixed") for standing in self.standings)


@dataclass(frozen=True)
class Choice:
    """Whose intervals to use, by interval score.

    ``"constant"``: one constant interval is clearly better over all rows. ``"theirs"``: those of another
    baseline are clearly better somewhere. ``"no gain"``: the model's are not clearly better than a constant
    one. ``"ours"``: they are clearly better than those of each baseline somewhere. ``"open"``: the rest.
    """

    kind: Literal["none", "constant", "theirs", "no gain", "ours", "open"] = "none"
    standing: Standing | None = None
    """The baseline that the words are about."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """What the test rows show of a model and its baselines.

    `kind` says what can be judged: ``"few rows"`` and ``"no tail"`` for too few rows of all labels or of rare
    ones, ``"nothing learned"`` if no model beats a constant, ``"judged"`` otherwise.
    """

    kind: Kind
    lineup: Lineup
    tail: Tail | None
    standings: tuple[Standing, ...] = ()
    """Against each baseline."""
    constant: str | None = None
    """The constant that no model clearly beats by absolute error, if there is one."""
    ranked: Mapping[str, float] = field(default_factory=dict)
    """Models whose larger predictions go with larger labels beyond chance, with the rank correlation."""
    points: Points = Points()
    choice: Choice = Choice()
    dial: bool = False
    """Whether a baseline is clearly better, and none would be at emphasis 0."""

    @property
    def ours(self) -> Scores:
        """The model."""
        return self.lineup.ours

    @cached_property
    def coverage(self) -> Coverage:
        """Of all test rows."""
        return Coverage.of(self.ours, self.ours.mask("all"))

    @cached_property
    def tail_coverage(self) -> Coverage | None:
        """Of the rows with rare labels."""
        return None if self.tail is None else Coverage.of(self.ours, self.tail.rows)

    @cached_property
    def status(self) -> Status:
        """Good if intervals hold and beat a constant one, and no baseline is better at anything.

        Bad if they fail or a constant one is better, or if neither amounts nor intervals tell anything.
        """
        if self.kind in ("few rows", "no tail"):
            return "unknown"
        if self.coverage.soundness == "under" or self.choice.kind == "constant":
            return "bad"
        if self.kind == "nothing learned":  # about amounts; intervals can still tell rows apart
            return "mixed" if self.choice.kind == "ours" else "bad"
        able = self.points.kind == "ahead" and self.choice.kind in ("ours", "open")
        return "good" if able and self.coverage.soundness != "undecided" else "mixed"

    @property
    def losing(self) -> bool:
        """Whether the intervals fail, or a baseline is clearly better at something."""
        beaten = self.points.kind == "beaten" or self.choice.kind in ("constant", "theirs")
        return self.kind == "nothing learned" or beaten or self.coverage.short

    @cached_property
    def headline(self) -> str:
        """The verdict in one sentence."""
        return say("verdict", "headline", self)

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """What it rests on."""
        return () if self.kind == "few rows" else sentences("verdict", "sentences", self, untested(self.ours))

    @cached_property
    def advice(self) -> str:
        """What to do."""
        return say("verdict", "advice", self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain strings and lists, ready for JSON."""
        said = {"status": self.status, "headline": self.headline}
        return {**said, "sentences": list(self.sentences), "advice": self.advice}


def judge(lineup: Lineup) -> Verdict:
    """Return what the test rows show, losses as well as gains, and nothing that they cannot show.

    If a baseline is better at something, emphasis 0 is judged too.
    """
    verdict, dial = _judge(lineup), lineup.ours.dial
    if not verdict.losing or dial is None or not lineup.ours.emphasis > 0:
        return verdict
    return replace(verdict, dial=not _judge(replace(lineup, ours=dial.turned[0])).losing)


def _judge(lineup: Lineup) -> Verdict:
    scores, tail, models = lineup.ours, tail_of(lineup.ours), (lineup.ours, *lineup.rivals)
    y, constant = scores.y, lineup.constant
    if y.size < MIN_TEST_ROWS:
        return Verdict("few rows", lineup, tail)
    standings = standings_of(lineup)
    verdict = Verdict("judged", lineup, tail, standings, choice=_choice(standings, constant))
    if constant is not None and not any(_better(s.error, constant.error) for s in models):
        verdict = replace(verdict, constant=constant.label(float(constant.mean[0])))
        # Where most labels are alike, hardly a prediction has a lower absolute error than their median.
        if not any(_better(s.error**2, (y - y.mean()) ** 2) for s in models):
            return replace(verdict, kind="nothing learned", ranked=_ranked(lineup))
    rarer = scores.labels.regions != "many"
    if tail is None and scores.mask("many").any() and scores.bins.counts[rarer].any():
        return replace(verdict, kind="no tail")
    return replace(verdict, points=_points(standings[: len(lineup.rivals)]))


def _better(error: Floats, other: Floats) -> bool:
    return mean_difference(error, other).outcome == "better"


def untested(scores: Scores) -> str:
    """Say where the test rows end if the training labels reach clearly further; otherwise return ""."""
    bins, counts = scores.bins, scores.bins.counts
    lows, highs = (bins.centers, bins.centers) if scores.whole else (bins.edges[:-1], bins.edges[1:])
    occupied = np.flatnonzero(counts)
    low, high = lows[occupied[0]], highs[occupied[-1]]
    least, most = float(scores.y.min()), float(scores.y.max())
    first, last = bins.index([least, most])
    below = counts[:first].any() and least - low > UNTESTED * (high - low)
    above = counts[last + 1 :].any() and high - most > UNTESTED * (high - low)
    ends = [(least, low) if below else None, (most, high) if above else None]
    return say("verdict", "untested", *(end and [scores.label(value) for value in end] for end in ends))


def _ranked(lineup: Lineup) -> dict[str, float]:
    """Return the models whose larger predictions go with larger labels beyond chance.

    The median of skewed labels can have the lowest absolute error although predictions order the rows well.
    """
    ranked = {}
    for scores in (lineup.ours, *lineup.rivals):
        if np.ptp(scores.mean) > 0 and np.ptp(scores.y) > 0:
            test = stats.spearmanr(scores.mean, scores.y)
            if test.statistic >= RANKED and test.pvalue < CHANCE:
                ranked[scores.title] = float(test.statistic)
    return ranked


# -- what to use -------------------------------------------------------------------------------------


def _points(standings: Sequence[Standing]) -> Points:
    """Recommend a model for point predictions only if the rows measured decide it.

    A region is won if the model beats every baseline there. It is lost if some beat the model, to the one of
    them with the lowest error.
    """
    if not standings or not standings[0].contrasts:
        return Points()
    won: list[str] = []
    lost: dict[str, list[str]] = {}
    for contrasts in zip(*(standing.contrasts for standing in standings), strict=True):
        outcomes = [contrast.outcome for contrast in contrasts]
        ahead = [k for k, outcome in enumerate(outcomes) if outcome == "worse"]
        if ahead:
            best = min(ahead, key=lambda k: contrasts[k].mae.theirs)
            lost.setdefault(standings[best].rival, []).append(contrasts[0].region)
        elif set(outcomes) == {"better"}:
            won.append(contrasts[0].region)
    if lost:
        rivals = tuple(s for s in standings if s.rival in lost)
        return Points("beaten", won, lost, rivals)
    if all(s.ahead for s in standings):
        return Points("ahead", won, standings=tuple(standings))
    if close := [s for s in standings if s.close]:
        return Points("close", standings=(min(close, key=lambda s: s.overall.mae.theirs),))
    return Points("open", standings=tuple(s for s in standings if not s.ahead))


def _choice(standings: Sequence[Standing], constant: Scores | None) -> Choice:
    """Return whose intervals to use: the interval score of every baseline counts in every region.

    Only a constant counts over all rows alone: where its interval lies, the region of a label gives it away.
    """
    rivals = standings if constant is None else standings[:-1]
    if constant is not None and standings[-1].overall.intervals.outcome == "worse":
        return Choice("constant", standings[-1])
    if worse := [s for s in rivals if s.intervals("worse")]:
        first = min(worse, key=lambda s: (-len(s.intervals("worse")), s.overall.intervals.theirs))
        return Choice("theirs", first)
    if constant is not None and standings[-1].overall.intervals.outcome != "better":
        return Choice("no gain", standings[-1])
    if unclear := [s for s in rivals if not s.intervals("better")]:
        return Choice("open", unclear[0])
    if not standings:
        return Choice()
    return Choice("ours", min(standings, key=lambda s: s.overall.intervals.theirs))
