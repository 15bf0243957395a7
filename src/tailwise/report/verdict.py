"""The verdict in words: can the tail be trusted, what did the method gain there, and what did it cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailwise.report.formatting import level, number, pair, percent
from tailwise.report.scoring import Change, Scored, compared, region_names, wilson

MIN_TAIL_ROWS = 10
"""With fewer test rows than this nothing is said about a region."""
MIN_SURE_ROWS = 50
"""With fewer test rows than this a verdict on coverage says so."""
SLIGHT = 0.02
"""Coverage short by no more than this is not called so, however many rows show it."""
NEAR = 0.05
"""Coverage no further below the promise keeps it."""
WIDE_SHARE = 0.5
"""Intervals wider than this share of the label range say little."""
UNTESTED = 0.05
"""An end of the label range without a test row is told of if it is a larger share of it."""


@dataclass(frozen=True)
class Verdict:
    """What the figures show. `headline` is one sentence; `advice` says what to do."""

    headline: str
    sentences: tuple[str, ...]
    advice: str
    status: str  # "good", "mixed", "bad" or "unknown"

    @property
    def text(self) -> str:
        """All of it, as one paragraph."""
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
    """The rarest rows of the test part that are many enough to judge by."""

    rows: NDArray[np.bool_]
    words: str  # where they are
    name: str  # what they are called in a sentence

    @property
    def n(self) -> int:
        """How many test rows there are."""
        return int(self.rows.sum())


def tail_of(scored: Scored) -> Tail | None:
    """Few-shot rows, or if those are too few to judge by, few- and medium-shot ones together."""
    few, medium = scored.rows("few"), scored.rows("medium")
    if few.sum() >= MIN_TAIL_ROWS:
        return Tail(few, f"where a label bin has fewer than {scored.few} training rows", "rare labels")
    if (few | medium).sum() >= MIN_TAIL_ROWS:
        words = f"where a label bin has at most {scored.many} training rows"
        return Tail(few | medium, words, "rarer labels")
    return None


def judge(scored: Scored, baseline: Scored | None = None) -> Verdict:
    """Say what the test rows show, losses as well as gains; nothing that they cannot show."""
    tail = tail_of(scored)
    if tail is None:
        return _without_tail(scored, baseline)
    headline, sound = _coverage_sentence(scored, tail)
    sentences = [_width_sentence(scored, tail), _pull_sentence(scored, tail), untested(scored)]
    advice = _trust_advice(sound)
    status = {"held": "good", "over": "mixed", "open": "mixed", "under": "bad"}[sound]
    if baseline is not None:
        said, choice, worth = _beside(scored, baseline, tail)
        sentences += said
        advice = f"{choice} {advice}".strip()
        status = "mixed" if status == "good" and not worth else status
    return Verdict(headline, tuple(s for s in sentences if s), advice, status)


def _beside(scored: Scored, baseline: Scored, tail: Tail) -> tuple[list[str], str, bool]:
    """Say how two models differ, which to use, and whether ours is worth having."""
    gain = compared(scored.error, baseline.error, tail.rows)
    overall = compared(scored.error, baseline.error, scored.rows("all"))
    common = compared(scored.error, baseline.error, ~tail.rows)
    surer, where = compared(scored.nll, baseline.nll, tail.rows), tail.name
    if not surer.clear:
        surer, where = compared(scored.nll, baseline.nll, scored.rows("all")), "all test rows together"
    said = [
        _gain_sentence(scored, baseline, tail, gain),
        _cost_sentence(scored, baseline, overall),
        _likelihood_sentence(scored, baseline, where, surer),
    ]
    choice, worth = _choice(scored, baseline, tail, gain, common, surer)
    if not worth and surer.clear and surer.difference < 0:
        what = f"how sure to be of {where}" if where == tail.name else "the uncertainty as a whole"
        choice += f" For {what}, {scored.title} is the better one."
    return said, choice, worth


def untested(scored: Scored) -> str:
    """Say up to where there are test rows, if training labels reach further by more than a little."""
    counts, centers = scored.bins.counts, scored.bins.centers
    low, high = centers[np.flatnonzero(counts > 0)[[0, -1]]]
    least, most = float(scored.y.min()), float(scored.y.max())
    first, last = scored.bins.index([least, most])
    said = []
    if counts[:first].any() and least - low > UNTESTED * (high - low):
        said.append(f"No test row is below {number(least)}; training labels begin near {number(low)}.")
    if counts[last + 1 :].any() and high - most > UNTESTED * (high - low):
        said.append(f"No test row is above {number(most)}; training labels reach about {number(high)}.")
    return " ".join(said)


def _coverage_sentence(scored: Scored, tail: Tail) -> tuple[str, str]:
    hits, n = int(scored.inside[tail.rows].sum()), tail.n
    low, high = wilson(hits, n)
    promised = level(scored.coverage)
    found = f"{percent(hits / n)} of the {promised} intervals hold {tail.words} ({hits} of {n} test rows)"
    if _under_covered(hits, n, scored.coverage):
        return f"The tail is under-covered: {found}.", "under"
    if low > scored.coverage and hits / n > scored.coverage + NEAR:
        return f"The tail is over-covered, its intervals are wider than they need be: {found}.", "over"
    if hits / n >= scored.coverage - NEAR:
        sure = "" if n >= MIN_SURE_ROWS else f", as far as {n} rows can tell"
        return f"The tail is covered as promised{sure}: {found}.", "held"
    return (
        f"Whether the tail is covered is open: {found}, fewer than promised, but so few rows leave anything "
        f"from {percent(low)} to {percent(high)} possible.",
        "open",
    )


def _under_covered(hits: int, n: int, promised: float) -> bool:
    """Whether fewer intervals hold than promised, beyond chance and beyond what is slight."""
    return wilson(hits, n)[1] < promised and hits / n < promised - SLIGHT


def _width_sentence(scored: Scored, tail: Tail) -> str:
    in_tail = float(scored.width[tail.rows].mean())
    reach = float(scored.bins.edges[-1] - scored.bins.edges[0])
    text = f"Its intervals are {number(in_tail)} wide on average"
    if (~tail.rows).any():
        here, there = pair(in_tail, float(scored.width[~tail.rows].mean()))
        text = f"Its intervals are {here} wide on average, against {there} elsewhere"
    if in_tail > WIDE_SHARE * reach:
        text += f": {percent(in_tail / reach)} of the whole label range, too wide to be of much use"
    return text + "."


def _pull_sentence(scored: Scored, tail: Tail) -> str:
    """Rare labels are predicted as commoner ones: say by how much, if it is clear."""
    middle = scored.bins.location
    away = np.sign(scored.y - middle) * (scored.y - scored.mean)
    pull = compared(away, np.zeros_like(away), tail.rows)
    if not pull.clear or pull.difference <= 0:
        return ""
    by = number(pull.difference)
    return f"Predictions of {tail.name} are still pulled towards common ones, by {by} on average."


def _gain_sentence(scored: Scored, baseline: Scored, tail: Tail, gain: Change) -> str:
    figures = " against ".join(pair(gain.ours, gain.theirs))
    if not gain.clear:
        return (
            f"For {tail.name} {scored.title} and {baseline.title} do not differ clearly: mean absolute error "
            f"{figures}, a difference of {number(abs(gain.difference))} ±\u00a0{number(gain.half)}."
        )
    word = "lower" if gain.difference < 0 else "higher"
    return (
        f"For {tail.name} the mean absolute error of {scored.title} is {number(abs(gain.difference))} {word} "
        f"(±\u00a0{number(gain.half)}) than that of {baseline.title}: {figures}."
    )


def _cost_sentence(scored: Scored, baseline: Scored, overall: Change) -> str:
    """What happened to the plain average, and if it is more than chance, which region it comes from."""
    change = overall.difference
    figures = " to ".join(pair(overall.theirs, overall.ours))
    if overall.theirs > 0:
        figures += f", {100 * abs(change) / overall.theirs:.1f}%"
    if change == 0:
        return f"Overall mean absolute error stays at {number(overall.ours)}."
    word = "rose" if change > 0 else "fell"
    text = f"Overall mean absolute error {word} by {number(abs(change))} ({figures})"
    if not overall.clear:
        return f"{text}, no more than chance in the test rows would explain."
    parts = {
        name: float((scored.error - baseline.error)[scored.rows(name)].sum())
        for name in region_names(list(scored.region))
    }
    region = max(parts, key=lambda name: parts[name] * np.sign(change))
    local = compared(scored.error, baseline.error, scored.rows(region))
    if local.n == overall.n:
        return f"{text}."
    before, after = pair(local.theirs, local.ours)
    return (
        f"{text} because {region}-shot labels, {percent(local.n / overall.n)} of the test rows, went from "
        f"{before} to {after}."
    )


def _likelihood_sentence(scored: Scored, baseline: Scored, what: str, surer: Change) -> str:
    """Whether the whole predicted distribution fits labels better, not just its middle."""
    if not surer.clear:
        return ""
    word = "better" if surer.difference < 0 else "worse"
    return (
        f"The predicted uncertainty of {scored.title} fits {what} {word} than that of {baseline.title} "
        f"(negative log-likelihood {' against '.join(pair(surer.ours, surer.theirs))})."
    )


def _choice(
    scored: Scored, baseline: Scored, tail: Tail, gain: Change, common: Change, surer: Change
) -> tuple[str, bool]:
    """Which of the two to use, and whether ours is worth having."""
    use = "" if surer.clear and surer.difference > 0 else " for point predictions"
    better, worse = gain.clear and gain.difference < 0, gain.clear and gain.difference > 0
    costs = common.clear and common.difference > 0
    helps = common.clear and common.difference < 0
    ours, theirs = scored.title, baseline.title
    if better and costs:
        return (
            f"Use {ours} if {tail.name} matter as much as common ones, {theirs} if only the average counts.",
            True,
        )
    if better and common.n == 0:
        return f"Use {ours}: it is better on {tail.name}, which are all there are here.", True
    if better:
        elsewhere = "better on common ones too" if helps else "costs nothing clear elsewhere"
        return f"Use {ours}: it is better on {tail.name} and {elsewhere}.", True
    if worse and helps:
        return (
            f"Use {theirs} if {tail.name} matter as much as common ones: {ours} is worse on them here, and "
            "better on common ones.",
            False,
        )
    if worse:
        return f"Use {theirs}{use}: {ours} is worse on {tail.name} here.", False
    if costs:
        lost = " to ".join(pair(common.theirs, common.ours))
        return (
            f"Use {theirs}{use}: {ours} gains nothing clear on {tail.name} and loses on all others together "
            f"({lost}).",
            False,
        )
    if helps:
        return f"Use {ours}: it is better on common labels and as good on {tail.name}.", True
    if not use:
        return f"Use {theirs}: {ours} gains nothing clear here, and its uncertainty fits worse.", False
    return f"Either will do for point predictions: {ours} gains nothing clear over {theirs} here.", False


def _trust_advice(sound: str) -> str:
    return {
        "held": "",
        "over": "Intervals in the tail are safe but wide.",
        "open": "Measure on more rows with rare labels before relying on intervals there.",
        "under": (
            "Do not rely on intervals in the tail: collect more such rows, or ask for a higher coverage "
            "there."
        ),
    }[sound]


def _without_tail(scored: Scored, baseline: Scored | None) -> Verdict:
    """No rarer rows to judge by: either the labels are common everywhere, or the test part is too small."""
    counts, regions = scored.bins.counts, scored.bins.regions(scored.many, scored.few)
    hits, n = int(scored.inside.sum()), int(scored.inside.size)
    short = _under_covered(hits, n, scored.coverage)
    held = f"Overall {percent(hits / n)} of the {level(scored.coverage)} intervals hold ({hits} of {n})"
    sentences, better = [f"{held}, fewer than promised." if short else f"{held}."], False
    if beyond := untested(scored):
        sentences.append(beyond)
    if baseline is not None:
        everyone = compared(scored.error, baseline.error, scored.rows("all"))
        sentences.append(_cost_sentence(scored, baseline, everyone))
        better = everyone.clear and everyone.difference < 0
    if (counts[regions != "many"] == 0).all():
        headline = f"There is no tail: every label bin has more than {scored.many} training rows."
        advice = f"Use {scored.title}: it is better all the same." if better else "Plain training will do."
        advice += " Do not rely on the intervals as they are." if short else ""
        return Verdict(headline, tuple(sentences), advice, "bad" if short else "good")
    tested = int((scored.region != "many").sum())
    found = {0: "no test row has a rare label", 1: "only one test row has a rare label"}
    headline = f"The tail cannot be judged: {found.get(tested, f'only {tested} test rows have rare labels')}."
    advice = "Measure on more rows with rare labels: `fit` takes them by --test or a larger --test-share."
    return Verdict(headline, tuple(sentences), advice, "unknown")
