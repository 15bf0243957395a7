"""A verdict in words: do the intervals hold, what does the model gain and cost, and should it be used.

Every sentence rests on test rows that no model has seen. Two errors differ only if the 99% interval of their
paired difference excludes zero: a page compares three baselines in three regions by two measures, and at 95%
one of them would often differ by chance. The labels that two models' intervals contain are compared by
McNemar's exact test at the same level. A model is recommended only if each baseline has a clearly higher
error for some labels, and none a clearly lower one for others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tailwise.core.label_prior import RARE_SHARE, LabelDensity, rarest
from tailwise.report.baselines import Lineup
from tailwise.report.contrasts import (
    CoverageContrast,
    Standing,
    best_by_region,
    contrasts_of,
    coverage_contrast,
    joined,
    region_words,
)
from tailwise.report.formatting import level, number, percent
from tailwise.report.scoring import Scored, paired_difference, wilson_interval

MIN_TEST_ROWS = 20
"""With fewer test rows nothing is judged."""
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
RANKED = 0.1
"""A smaller rank correlation of predictions and labels is not mentioned."""
UNTESTED = 0.05
"""An end of the label range without test rows is mentioned if it is a larger share of the range."""

Soundness = Literal["kept", "over", "undecided", "under"]
_STATUS: dict[Soundness, str] = {"kept": "good", "over": "mixed", "undecided": "mixed", "under": "bad"}
_MEASURE = "Measure on more {}: hold out a larger share, or use a separate test table."
_INTERVAL_ADVICE: dict[Soundness, str] = {
    "kept": "",
    "over": "",
    "undecided": "Measure on more rows with {0} before you rely on their intervals.",
    "under": "Do not rely on the intervals of {0}: collect more such rows, or ask for a higher coverage.",
}


@dataclass(frozen=True)
class Verdict:
    """What the figures show. `headline` is one sentence; `advice` says what to do."""

    headline: str
    sentences: tuple[str, ...]
    advice: str
    status: str  # "good", "mixed", "bad" or "unknown"

    @property
    def text(self) -> str:
        """The whole verdict as one paragraph."""
        return " ".join((self.headline, *self.sentences, self.advice)).strip()

    def to_dict(self) -> dict[str, Any]:
        """Return plain strings and lists, ready for JSON."""
        return {
            "status": self.status,
            "headline": self.headline,
            "sentences": list(self.sentences),
            "advice": self.advice,
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


def judge(lineup: Lineup) -> Verdict:
    """Return what the test rows show, losses as well as gains, and nothing that they cannot show."""
    scored, tail = lineup.ours, tail_of(lineup.ours)
    n = scored.y.size
    if n < MIN_TEST_ROWS:
        headline = f"Nothing can be judged: {n} test row{'s are' if n != 1 else ' is'} too few."
        return Verdict(
            headline, (), "Measure on more rows: hold out a larger share, or use another table.", "unknown"
        )
    sentences = [*_interval_sentences(lineup, tail), untested_range(scored)]
    if (constant := _noise(lineup)) is not None:
        sentences += [standing.sentence for standing in contrasts_of(lineup, MIN_TAIL_ROWS)]
        ranked = _rank_sentence(lineup)
        none = f"o model has a clearly lower error than always predicting {constant}."
        use = " as amounts, at most to rank rows" if ranked else ""
        return Verdict(
            f"N{none}" if ranked else f"Nothing was learned: n{none}",
            tuple(s for s in [ranked, *sentences] if s),
            f"Do not use these predictions{use}: look for {lineup.inputs} that tell more about the label.",
            "bad",
        )
    standings = contrasts_of(lineup, MIN_TAIL_ROWS)
    sentences += [standing.sentence for standing in standings]
    headline, sound = _interval_headline(scored, tail)
    points = _points(scored.title, standings)
    unjudged = tail is None and _has_tail(scored) and bool(scored.mask("many").any())
    if unjudged:
        rare = int((scored.region != "many").sum())
        found = {0: "no test row has a rare label", 1: "only one test row has a rare label"}
        headline = (
            f"Rare labels cannot be judged: {found.get(rare, f'only {rare} test rows have rare labels')}."
        )
        points = _Points(
            "", "Measure on more rows with rare labels: hold out a larger share, or use another table."
        )
    elif points.headline:
        headline = f"{headline.removesuffix('.')}; {points.headline}."
    advice = [points.advice]
    if not unjudged:
        whose = "these labels" if tail is None else tail.name
        advice += [_INTERVAL_ADVICE[sound].format(whose), _interval_choice(lineup, tail)]
    status = _STATUS[sound]
    if unjudged:
        status = "unknown"
    elif status == "good" and points.choice != "ours":
        status = "mixed"
    return Verdict(headline, tuple(s for s in sentences if s), " ".join(a for a in advice if a), status)


def untested_range(scored: Scored) -> str:
    """Say where the test rows end if the training labels reach clearly further; otherwise return ""."""
    counts, centers = scored.bins.counts, scored.bins.centers
    low, high = centers[np.flatnonzero(counts > 0)[[0, -1]]]
    least, most = float(scored.y.min()), float(scored.y.max())
    first, last = scored.bins.index([least, most])
    sentences = []
    if counts[:first].any() and least - low > UNTESTED * (high - low):
        sentences.append(
            f"No test row is below {scored.label(least)}; training labels begin near {scored.label(low)}."
        )
    if counts[last + 1 :].any() and high - most > UNTESTED * (high - low):
        sentences.append(
            f"No test row is above {scored.label(most)}; training labels reach about {scored.label(high)}."
        )
    return " ".join(sentences)


def _has_tail(scored: Scored) -> bool:
    """Whether some label bin with training rows has few or medium many of them."""
    rarer = scored.bins.regions(scored.many, scored.few) != "many"
    return bool((scored.bins.counts[rarer] > 0).any())


def _noise(lineup: Lineup) -> str | None:
    """Return the constant that no model beats clearly, if so."""
    constant = lineup.constant
    if constant is None:
        return None
    everything = constant.mask("all")
    models = [lineup.ours, *lineup.rivals]
    if any(paired_difference(s.error, constant.error, everything, 0.99).better for s in models):
        return None
    return constant.label(float(constant.mean[0]))


def _rank_sentence(lineup: Lineup) -> str:
    """Name the models whose larger predictions go with larger labels beyond chance; "" if there is none.

    The median of skewed labels can have the lowest absolute error although predictions order the rows well.
    """
    ranked = []
    for scored in (lineup.ours, *lineup.rivals):
        if np.ptp(scored.mean) > 0 and np.ptp(scored.y) > 0:
            found = stats.spearmanr(scored.mean, scored.y)
            if found.statistic >= RANKED and found.pvalue < 0.01:
                ranked.append(f"{found.statistic:.2f} for {scored.title}")
    if not ranked:
        return ""
    return f"Larger predictions still go with larger labels: the rank correlation is {joined(ranked)}."


# -- intervals -------------------------------------------------------------------------------------


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


def _interval_headline(scored: Scored, tail: Tail | None) -> tuple[str, Soundness]:
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


def _interval_sentences(lineup: Lineup, tail: Tail | None) -> list[str]:
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


def _interval_choice(lineup: Lineup, tail: Tail | None) -> str:
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
    pull = paired_difference(away, np.zeros_like(away), tail.rows, 0.99)
    if pull.undecided or pull.value <= 0:
        return ""
    return f"Predictions of {tail.name} are pulled towards common ones, by {number(pull.value)} on average."


# -- point predictions -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Points:
    """Which model to use for point predictions: a clause for the headline, and advice."""

    headline: str
    advice: str
    choice: str = "none"  # "ours", "theirs", "depends" or "none"


def _points(ours: str, standings: Sequence[Standing]) -> _Points:
    """Recommend a model only if the rows measured decide it."""
    if not standings or not standings[0].contrasts:
        return _Points("", "")
    best = best_by_region(ours, standings)
    beaten = {region: title for region, title in best.items() if title != ours}
    if beaten:
        return _beaten(ours, standings, best, beaten)
    if all(s.kind == "ahead" for s in standings):
        names = joined([s.rival for s in standings])
        reasons = joined([f"than that of {s.rival} for {s.words('better')}" for s in standings])
        clause = (
            f"for {region_words(best)} its error is lower than that of {names}"
            if best
            else (f"its error is lower than that of {names}, for other labels each")
        )
        advice = (
            f"For point predictions, use {ours}: on these rows its error is lower {reasons}, and "
            "clearly higher in no region."
        )
        return _Points(clause, advice, "ours")
    mixed = [s for s in standings if s.kind == "split"]
    if mixed:
        first = mixed[0]
        advice = (
            f"There is no recommendation for point predictions: for {first.words('mixed')} one of MAE and "
            f"RMSE is lower than that of {first.rival} and the other higher, so it depends on how much large "
            "errors cost."
        )
        return _Points(f"MAE and RMSE disagree on whether {first.rival} is more accurate", advice)
    close = [s for s in standings if s.kind == "close"]
    if close:
        first = min(close, key=lambda s: s.overall.theirs)
        most = percent(max(d.bound for c in first.contrasts for d in (c.mae, c.rmse)))
        return _Points(
            f"its error and that of {first.rival} differ by at most {most} for "
            f"{region_words(c.region for c in first.contrasts)}",
            f"For point predictions, {first.rival} is enough: more than that cannot be gained.",
            "theirs",
        )
    names = joined([s.rival for s in standings if s.kind == "open"])
    return _Points(
        f"whether {ours} is more accurate than {names} is undecided",
        f"There is no recommendation for point predictions: the differences to {names} are within their "
        "error. More test rows can decide.",
    )


def _beaten(
    ours: str, standings: Sequence[Standing], best: Mapping[str, str], beaten: Mapping[str, str]
) -> _Points:
    """Say for which labels a baseline is more accurate, and for which the model is, if for any."""
    won = [region for region, title in best.items() if title == ours]
    labels = {
        rival: region_words(region for region, title in beaten.items() if title == rival)
        for rival in dict.fromkeys(beaten.values())
    }
    clause = joined([f"{rival} is more accurate for {words}" for rival, words in labels.items()])
    first, *others = labels.items()
    if won:
        rest = joined([f"{rival} if {words} do" for rival, words in labels.items()])
        mine = region_words(won)
        advice = f"For point predictions, use {ours} if {mine} matter most, and {rest}."
        return _Points(f"{ours} is more accurate for {mine}, and {clause}", advice, "depends")
    rival, words = first
    standing = next(s for s in standings if s.rival == rival)
    if others or standing.kind != "behind":
        rest = "".join(f", {rival} if {words} do" for rival, words in others)
        advice = (
            f"For point predictions, use {rival} if {words} matter most{rest}: for no labels is the error of "
            f"{ours} clearly lower than that of every baseline."
        )
    elif still := [c.region for c in standing.regions("undecided") if not c.close]:
        advice = (
            f"For point predictions of {words}, use {rival} rather than {ours}: its error is lower. Which of "
            f"the two is better for {region_words(still)} is undecided."
        )
    else:
        advice = (
            f"For point predictions, use {rival} rather than {ours}: its error is lower for {words}, and "
            "clearly higher in no region."
        )
    return _Points(clause, advice, "theirs")
