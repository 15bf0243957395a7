"""A verdict in words: can the tail be trusted, what does the method gain there, and what does it cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tailwise.report.formatting import level, number, pair, percent
from tailwise.report.scoring import Difference, Scored, paired_difference, sorted_regions, wilson_interval

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
UNTESTED = 0.05
"""An end of the label range without test rows is mentioned if it is a larger share of the range."""

Soundness = Literal["kept", "over", "undecided", "under"]
_STATUS: dict[Soundness, str] = {"kept": "good", "over": "mixed", "undecided": "mixed", "under": "bad"}
_ADVICE: dict[Soundness, str] = {
    "kept": "",
    "over": "Intervals in the tail are safe but wide.",
    "undecided": "Measure on more rows with rare labels before you rely on intervals there.",
    "under": "Do not rely on intervals in the tail: collect more such rows, or ask for a higher coverage.",
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
    """Return the few-shot rows; if they are too few to judge, few- and medium-shot rows together."""
    few, medium = scored.mask("few"), scored.mask("medium")
    if few.sum() >= MIN_TAIL_ROWS:
        return Tail(few, f"where a label bin has fewer than {scored.few} training rows", "rare labels")
    if (few | medium).sum() >= MIN_TAIL_ROWS:
        where = f"where a label bin has at most {scored.many} training rows"
        return Tail(few | medium, where, "rarer labels")
    return None


def judge(scored: Scored, baseline: Scored | None = None) -> Verdict:
    """Return what the test rows show, losses as well as gains, and nothing that they cannot show."""
    tail = tail_of(scored)
    if tail is None:
        return _verdict_without_tail(scored, baseline)
    headline, sound = _coverage_sentence(scored, tail)
    sentences = [_width_sentence(scored, tail), _pull_sentence(scored, tail), untested_range(scored)]
    advice, status = _ADVICE[sound], _STATUS[sound]
    if baseline is not None:
        more, choice, chosen = _compare(scored, baseline, tail)
        sentences += more
        advice = f"{choice} {advice}".strip()
        status = "mixed" if status == "good" and chosen != "ours" else status
    return Verdict(headline, tuple(s for s in sentences if s), advice, status)


def untested_range(scored: Scored) -> str:
    """Say where the test rows end if the training labels reach clearly further; otherwise return ""."""
    counts, centers = scored.bins.counts, scored.bins.centers
    low, high = centers[np.flatnonzero(counts > 0)[[0, -1]]]
    least, most = float(scored.y.min()), float(scored.y.max())
    first, last = scored.bins.index([least, most])
    sentences = []
    if counts[:first].any() and least - low > UNTESTED * (high - low):
        sentences.append(f"No test row is below {number(least)}; training labels begin near {number(low)}.")
    if counts[last + 1 :].any() and high - most > UNTESTED * (high - low):
        sentences.append(f"No test row is above {number(most)}; training labels reach about {number(high)}.")
    return " ".join(sentences)


# -- one model -------------------------------------------------------------------------------------


def _coverage_sentence(scored: Scored, tail: Tail) -> tuple[str, Soundness]:
    hits, n, promised = int(scored.inside[tail.rows].sum()), tail.n, scored.coverage
    low, high = wilson_interval(hits, n)
    found = (
        f"{percent(hits / n)} of the {level(promised)} intervals contain the true label {tail.where} "
        f"({hits} of {n} test rows)"
    )
    if _under_covered(hits, n, promised):
        return f"The tail is under-covered: {found}.", "under"
    if low > promised and hits / n > promised + NEAR:
        return f"The tail is over-covered, its intervals are wider than necessary: {found}.", "over"
    if hits / n >= promised - NEAR:
        about = "" if hits / n >= promised else "about "
        limit = "" if n >= MIN_SURE_ROWS else f", as far as {n} rows can tell"
        return f"The tail is covered {about}as promised{limit}: {found}.", "kept"
    return (
        f"Whether the tail is covered is undecided: {found}, less than promised, but with so few rows the "
        f"true share can be anything from {percent(low)} to {percent(high)}.",
        "undecided",
    )


def _under_covered(hits: int, n: int, promised: float) -> bool:
    """Whether coverage falls short of the promised level by more than chance and by more than `SLIGHT`."""
    return wilson_interval(hits, n)[1] < promised and hits / n < promised - SLIGHT


def _width_sentence(scored: Scored, tail: Tail) -> str:
    in_tail = float(scored.width[tail.rows].mean())
    here, elsewhere = number(in_tail), ""
    if (~tail.rows).any():
        here, there = pair(in_tail, float(scored.width[~tail.rows].mean()))
        elsewhere = f"; elsewhere they are {there} wide"
    share = in_tail / float(scored.bins.edges[-1] - scored.bins.edges[0])
    wide = f", {percent(share)} of the whole label range, too wide to be of much use"
    return f"Intervals in the tail are {here} wide on average{wide if share > WIDE_SHARE else ''}{elsewhere}."


def _pull_sentence(scored: Scored, tail: Tail) -> str:
    """Say how far rare labels are predicted towards the common ones, if this is clear."""
    away = np.sign(scored.y - scored.bins.location) * (scored.y - scored.mean)
    pull = paired_difference(away, np.zeros_like(away), tail.rows)
    if pull.undecided or pull.value <= 0:
        return ""
    return f"Predictions of {tail.name} are pulled towards common ones, by {number(pull.value)} on average."


# -- two models ------------------------------------------------------------------------------------


def _compare(scored: Scored, baseline: Scored, tail: Tail) -> tuple[list[str], str, str]:
    """Return how two models differ, which one to use, and "ours", "theirs" or "either"."""
    in_tail = paired_difference(scored.error, baseline.error, tail.rows)
    elsewhere = paired_difference(scored.error, baseline.error, ~tail.rows)
    fit, where = paired_difference(scored.nll, baseline.nll, tail.rows), tail.name
    if fit.undecided:
        fit, where = paired_difference(scored.nll, baseline.nll, scored.mask("all")), "all test rows together"
    ours, theirs = scored.title, baseline.title
    sentences = [
        _gain_sentence(ours, theirs, tail, in_tail),
        _cost_sentence(scored, baseline),
        _likelihood_sentence(ours, theirs, where, fit),
    ]
    choice, chosen = _choice(ours, theirs, tail, in_tail, elsewhere, fit)
    if (fit.better and chosen != "ours") or (fit.worse and chosen == "ours"):
        what = f"the uncertainty of {where}" if where == tail.name else "the uncertainty as a whole"
        choice += f" For {what}, {ours if fit.better else theirs} is the better one."
    return sentences, choice, chosen


def _gain_sentence(ours: str, theirs: str, tail: Tail, gain: Difference) -> str:
    figures = " against ".join(pair(gain.ours, gain.theirs))
    by, error = number(abs(gain.value)), f"±\u00a0{number(gain.half)}"
    if gain.undecided:
        return (
            f"Which is more accurate for {tail.name}, {ours} or {theirs}, is undecided: mean absolute error "
            f"{figures}, a difference of {by} {error}."
        )
    word = "lower" if gain.better else "higher"
    return (
        f"For {tail.name} the mean absolute error of {ours} is {by} {word} ({error}) than that of {theirs}: "
        f"{figures}."
    )


def _cost_sentence(scored: Scored, baseline: Scored) -> str:
    """Compare the errors over all test rows; name the region that a clear difference comes from."""
    overall = paired_difference(scored.error, baseline.error, scored.mask("all"))
    ours, theirs = scored.title, baseline.title
    if overall.value == 0:
        same = number(overall.ours)
        return f"Over all test rows {ours} and {theirs} have the same mean absolute error, {same}."
    word = "higher" if overall.value > 0 else "lower"
    figures = " against ".join(pair(overall.ours, overall.theirs))
    if overall.theirs > 0:
        figures += f", {100 * abs(overall.value) / overall.theirs:.1f}%"
    text = (
        f"Over all test rows the mean absolute error of {ours} is {number(abs(overall.value))} {word} than "
        f"that of {theirs} ({figures})"
    )
    if overall.undecided:
        return f"{text}, which is within its error of ±\u00a0{number(overall.half)}: undecided."
    regions = sorted_regions(scored.region)
    if len(regions) == 1:
        return f"{text}."
    parts = {name: (scored.error - baseline.error)[scored.mask(name)].sum() for name in regions}
    region = max(parts, key=lambda name: parts[name] * np.sign(overall.value))
    local = paired_difference(scored.error, baseline.error, scored.mask(region))
    return (
        f"{text}. The largest part comes from {region}-shot labels, {percent(local.n / overall.n)} of the "
        f"test rows: {' against '.join(pair(local.ours, local.theirs))}."
    )


def _likelihood_sentence(ours: str, theirs: str, where: str, fit: Difference) -> str:
    """Compare the whole predicted distributions, not just their means."""
    if fit.undecided:
        return ""
    word = "better" if fit.better else "worse"
    return (
        f"The predicted uncertainty of {ours} fits {where} {word} than that of {theirs} "
        f"(negative log-likelihood {' against '.join(pair(fit.ours, fit.theirs))})."
    )


def _choice(
    ours: str, theirs: str, tail: Tail, in_tail: Difference, elsewhere: Difference, fit: Difference
) -> tuple[str, str]:
    """Return which of the two to use, in words, and "ours", "theirs" or "either"."""
    points = "" if fit.worse else " for point predictions"
    if in_tail.better and elsewhere.worse:
        text = f"Use {ours} if {tail.name} matter as much as common ones, {theirs} if only common ones do."
        return text, "ours"
    if in_tail.better and elsewhere.n == 0:
        return f"Use {ours}: it is better on {tail.name}, and there are no other test rows.", "ours"
    if in_tail.better:
        rest = "better on common ones too" if elsewhere.better else "not clearly worse elsewhere"
        return f"Use {ours}: it is better on {tail.name} and {rest}.", "ours"
    if in_tail.worse and elsewhere.better:
        text = f"Use {theirs} if {tail.name} matter as much as common ones, {ours} if only common ones do."
        return text, "theirs"
    if in_tail.worse:
        return f"Use {theirs}{points}: {ours} is worse on {tail.name} here.", "theirs"
    if elsewhere.worse:
        figures = " against ".join(pair(elsewhere.ours, elsewhere.theirs))
        return (
            f"Use {theirs}{points}: {ours} is not clearly better on {tail.name} and worse on all others "
            f"({figures}).",
            "theirs",
        )
    if elsewhere.better:
        text = f"Use {ours}: it is better on common labels, and on {tail.name} the two do not differ clearly."
        return text, "ours"
    if fit.worse:
        return (
            f"Use {theirs}: {ours} is not clearly more accurate, and its uncertainty fits worse.",
            "theirs",
        )
    return (
        f"Either will do for point predictions: {ours} and {theirs} do not differ clearly.",
        "either",
    )


# -- no tail to judge ------------------------------------------------------------------------------


def _verdict_without_tail(scored: Scored, baseline: Scored | None) -> Verdict:
    """Either all labels are common, or the test part has too few rare ones."""
    counts, regions = scored.bins.counts, scored.bins.regions(scored.many, scored.few)
    hits, n = int(scored.inside.sum()), int(scored.inside.size)
    short = _under_covered(hits, n, scored.coverage)
    found = f"Overall {percent(hits / n)} of the {level(scored.coverage)} intervals contain the true label"
    sentences = [f"{found} ({hits} of {n} test rows){', less than promised' if short else ''}."]
    better = False
    if baseline is not None:
        sentences.append(_cost_sentence(scored, baseline))
        better = paired_difference(scored.error, baseline.error, scored.mask("all")).better
    if untested := untested_range(scored):
        sentences.insert(1, untested)
    if (counts[regions != "many"] == 0).all():
        headline = (
            f"There is no tail: every label bin with training rows has more than {scored.many} of them."
        )
        advice = f"Use {scored.title}: it is better all the same." if better else "Plain training will do."
        advice += " Do not rely on the intervals as they are." if short else ""
        return Verdict(headline, tuple(sentences), advice, "bad" if short else "good")
    rare = int((scored.region != "many").sum())
    found = {0: "no test row has a rare label", 1: "only one test row has a rare label"}.get(
        rare, f"only {rare} test rows have rare labels"
    )
    advice = "Measure on more rows with rare labels: hold out a larger share, or use a separate test table."
    return Verdict(f"The tail cannot be judged: {found}.", tuple(sentences), advice, "unknown")
