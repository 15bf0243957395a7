"""A verdict in words: do the intervals hold, what does the model gain and cost, and should it be used.

Every sentence rests on test rows that no model has seen. Two errors differ only if the 99% interval of their
paired difference excludes zero: a page compares three baselines in three regions by two measures, and at 95%
one of them would often differ by chance. A model is recommended only if each baseline has a clearly higher
error for some labels, and none a clearly lower one for others. The sentences on intervals are those of
`tailwise.report.interval_verdict`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from tailwise.report.baselines import Lineup
from tailwise.report.contrasts import (
    CONFIDENCE,
    Standing,
    best_by_region,
    contrasts_of,
    joined,
    region_words,
)
from tailwise.report.formatting import percent
from tailwise.report.interval_verdict import (
    INTERVAL_ADVICE,
    MIN_TAIL_ROWS,
    Soundness,
    interval_choice,
    interval_headline,
    interval_sentences,
    tail_of,
)
from tailwise.report.scoring import Floats, Scored, paired_difference

MIN_TEST_ROWS = 20
"""With fewer test rows nothing is judged."""
RANKED = 0.1
"""A smaller rank correlation of predictions and labels is not mentioned."""
UNTESTED = 0.05
"""An end of the label range without test rows is mentioned if it is a larger share of the range."""

_STATUS: dict[Soundness, str] = {"kept": "good", "over": "mixed", "undecided": "mixed", "under": "bad"}


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


def judge(lineup: Lineup) -> Verdict:
    """Return what the test rows show, losses as well as gains, and nothing that they cannot show."""
    scored, tail = lineup.ours, tail_of(lineup.ours)
    n = scored.y.size
    if n < MIN_TEST_ROWS:
        headline = f"Nothing can be judged: {n} test row{'s are' if n != 1 else ' is'} too few."
        return Verdict(
            headline, (), "Measure on more rows: hold out a larger share, or use another table.", "unknown"
        )
    sentences = [*interval_sentences(lineup, tail), untested_range(scored)]
    constant = _unbeaten(lineup)
    if constant is not None and not _learned_squares(lineup):
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
    if constant is not None:
        sentences.append(
            f"No model has a clearly lower MAE than always predicting {constant}. By RMSE, where large "
            "errors count more, one is better than any constant."
        )
    standings = contrasts_of(lineup, MIN_TAIL_ROWS)
    sentences += [standing.sentence for standing in standings]
    headline, sound = interval_headline(scored, tail)
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
        advice += [INTERVAL_ADVICE[sound].format(whose), interval_choice(lineup, tail)]
    status = _STATUS[sound]
    if unjudged:
        status = "unknown"
    elif status == "good" and points.choice != "ours":
        status = "mixed"
    return Verdict(headline, tuple(s for s in sentences if s), " ".join(a for a in advice if a), status)


def untested_range(scored: Scored) -> str:
    """Say where the test rows end if the training labels reach clearly further; otherwise return ""."""
    bins, counts = scored.bins, scored.bins.counts
    lows, highs = (bins.centers, bins.centers) if scored.whole else (bins.edges[:-1], bins.edges[1:])
    occupied = np.flatnonzero(counts)
    low, high = lows[occupied[0]], highs[occupied[-1]]
    least, most = float(scored.y.min()), float(scored.y.max())
    first, last = bins.index([least, most])
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


def _unbeaten(lineup: Lineup) -> str | None:
    """Return the constant that no model clearly beats by absolute error, if so."""
    constant = lineup.constant
    if constant is None or any(_better(s.error, constant.error) for s in lineup.models):
        return None
    return constant.label(float(constant.mean[0]))


def _learned_squares(lineup: Lineup) -> bool:
    """Whether a model clearly beats the best constant by squared error, the mean of the test labels.

    Where most labels are alike, such as 0, hardly a prediction has a lower absolute error than their median.
    """
    y = lineup.ours.y
    return any(_better(s.error**2, (y - y.mean()) ** 2) for s in lineup.models)


def _better(error: Floats, other: Floats) -> bool:
    return paired_difference(error, other, np.ones(error.size, bool), CONFIDENCE).better


def _rank_sentence(lineup: Lineup) -> str:
    """Name the models whose larger predictions go with larger labels beyond chance; "" if there is none.

    The median of skewed labels can have the lowest absolute error although predictions order the rows well.
    """
    ranked = []
    for scored in lineup.models:
        if np.ptp(scored.mean) > 0 and np.ptp(scored.y) > 0:
            found = stats.spearmanr(scored.mean, scored.y)
            if found.statistic >= RANKED and found.pvalue < 1 - CONFIDENCE:
                ranked.append(f"{found.statistic:.2f} for {scored.title}")
    if not ranked:
        return ""
    return f"Larger predictions still go with larger labels: the rank correlation is {joined(ranked)}."


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
