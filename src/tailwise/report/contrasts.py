"""Errors and intervals of a model and a baseline: what is lower, what is higher, what is undecided."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tailwise.report.baselines import PLAIN_TITLE, Lineup
from tailwise.report.formatting import pair
from tailwise.report.scoring import Difference, Scored, paired_difference, rmse_difference, sorted_regions

CONFIDENCE = 0.99
"""Of the interval of a difference between two models; the difference is clear if zero lies outside."""
CLOSE = 0.05
"""Two models are close where the interval of their difference allows no more than this share."""
ALIKE = 0.1
"""Baselines whose errors differ by at most this share are alike in advice."""
REGION_WORDS = {"many": "common labels", "medium": "less common labels", "few": "rare labels"}

Outcome = Literal["better", "worse", "mixed", "undecided"]
Kind = Literal["ahead", "behind", "split", "close", "open"]


@dataclass(frozen=True)
class Contrast:
    """Mean absolute and root mean square error of two models in one region."""

    region: str
    mae: Difference
    rmse: Difference

    @property
    def outcome(self) -> Outcome:
        """Better if one measure is clearly lower and the other not higher at all; worse likewise.

        Mixed if a clear difference of one measure meets a difference of the other in the other direction.
        """
        pair = (self.mae, self.rmse)
        lower, higher = (any(d.better for d in pair), any(d.worse for d in pair))
        if lower:
            return "better" if all(d.value <= 0 for d in pair) else "mixed"
        if higher:
            return "worse" if all(d.value >= 0 for d in pair) else "mixed"
        return "undecided"

    @property
    def close(self) -> bool:
        """Whether the intervals of both differences allow no more than `CLOSE`."""
        return self.mae.bound <= CLOSE and self.rmse.bound <= CLOSE

    @property
    def words(self) -> str:
        """``common labels (MAE 1.4 against 1.6; RMSE 1.9 against 2.1)``."""
        mae, rmse = (" against ".join(pair(d.ours, d.theirs)) for d in (self.mae, self.rmse))
        return f"{REGION_WORDS[self.region]} (MAE {mae}; RMSE {rmse})"


@dataclass(frozen=True)
class Standing:
    """How a model compares with one baseline, over the regions with enough test rows."""

    rival: str
    contrasts: tuple[Contrast, ...]
    overall: Difference

    def regions(self, outcome: Outcome) -> list[Contrast]:
        """Return the regions with an outcome."""
        return [contrast for contrast in self.contrasts if contrast.outcome == outcome]

    def words(self, outcome: Outcome) -> str:
        """Return the names of the regions with an outcome."""
        return region_words(contrast.region for contrast in self.regions(outcome))

    @property
    def kind(self) -> Kind:
        """Ahead or behind if all clear differences agree, split if they do not, else close or open."""
        wins, losses = self.regions("better"), self.regions("worse")
        if self.regions("mixed") or (wins and losses):
            return "split"
        if wins or losses:
            return "ahead" if wins else "behind"
        if self.contrasts and all(contrast.close for contrast in self.contrasts):
            return "close"
        return "open"

    @property
    def sentence(self) -> str:
        """The outcome in every region, with MAE and RMSE."""
        said = {
            "better": "lower for",
            "worse": "higher for",
            "mixed": "mixed for",
            "undecided": "undecided for",
        }
        parts = []
        for outcome, word in said.items():
            found = [contrast.words for contrast in self.contrasts if contrast.outcome == outcome]
            if found:
                parts.append(f"{word} {joined(found)}")
        return f"Against {self.rival}, the error is {'; '.join(parts)}." if parts else ""


def contrast(ours: Scored, theirs: Scored, region: str, rows: NDArray[np.bool_] | None = None) -> Contrast:
    """Compare two models on the test rows of a region, or on those given. (N,)"""
    rows = ours.mask(region) if rows is None else rows
    return Contrast(
        region,
        paired_difference(ours.error, theirs.error, rows, CONFIDENCE),
        rmse_difference(ours.error, theirs.error, rows, CONFIDENCE),
    )


@dataclass(frozen=True)
class CoverageContrast:
    """How many intervals of two models contain the label, on the same rows, and their mean widths."""

    hits: tuple[int, int]
    """Intervals of the model and of the baseline that contain the label."""
    n: int
    p_value: float
    """Of McNemar's exact test: the rows that one of the two covers and the other does not."""
    width: Difference
    """Mean widths over all rows."""

    @property
    def undecided(self) -> bool:
        """Whether the difference of the two shares can be chance."""
        return self.p_value >= 1 - CONFIDENCE

    @property
    def outcome(self) -> Outcome:
        """Better if the model's intervals contain clearly more labels, worse if clearly fewer."""
        if self.undecided:
            return "undecided"
        return "better" if self.hits[0] > self.hits[1] else "worse"

    @property
    def widths(self) -> tuple[str, str]:
        """The mean widths of the two as text."""
        return pair(self.width.ours, self.width.theirs)


def coverage_contrast(ours: Scored, theirs: Scored, rows: NDArray[np.bool_]) -> CoverageContrast:
    """Compare the intervals of two models on some rows by McNemar's exact test. (N,)"""
    a, b = ours.inside[rows], theirs.inside[rows]
    only_ours, only_theirs = int((a & ~b).sum()), int((b & ~a).sum())
    differ = only_ours + only_theirs
    p_value = float(stats.binomtest(only_ours, differ).pvalue) if differ else 1.0
    width = paired_difference(ours.width, theirs.width, ours.mask("all"), CONFIDENCE)
    return CoverageContrast((int(a.sum()), int(b.sum())), a.size, p_value, width)


def contrasts_of(lineup: Lineup, min_rows: int) -> list[Standing]:
    """Compare the model with each baseline, in each region with at least so many test rows."""
    ours = lineup.ours
    regions = [r for r in sorted_regions(ours.region) if ours.mask(r).sum() >= min_rows]
    return [
        Standing(
            spoken(rival.title),
            tuple(contrast(ours, rival, region) for region in regions),
            paired_difference(ours.error, rival.error, ours.mask("all"), CONFIDENCE),
        )
        for rival in lineup.rivals
    ]


def best_by_region(ours: str, standings: Sequence[Standing]) -> dict[str, str]:
    """Return the title of a model that is clearly more accurate, for each region that has one.

    It is the model if it beats every baseline, or a baseline that beats the model. Baselines are not
    compared with one another: of several whose MAE there is within `ALIKE` of the lowest, the one that
    beats the model in the most regions is named.
    """
    outcomes = {s.rival: {c.region: c.outcome for c in s.contrasts} for s in standings}
    order = {s.rival: s.overall.theirs for s in standings}
    errors = {s.rival: {c.region: c.mae.theirs for c in s.contrasts} for s in standings}
    best = {}
    for region in (c.region for c in standings[0].contrasts):
        if all(found[region] == "better" for found in outcomes.values()):
            best[region] = ours
        able = [rival for rival, found in outcomes.items() if found[region] == "worse"]
        if able:
            most = (1 + ALIKE) * min(errors[rival][region] for rival in able)
            able = [rival for rival in able if errors[rival][region] <= most]
            wins = {rival: sum(o == "worse" for o in outcomes[rival].values()) for rival in able}
            best[region] = min(able, key=lambda rival: (-wins[rival], order[rival]))
    return best


def spoken(title: str) -> str:
    """Return what sentences call a model."""
    return f"the {title}" if title == PLAIN_TITLE else title


def region_words(regions: Iterable[str]) -> str:
    """Return what sentences call some regions."""
    return joined([REGION_WORDS[region] for region in regions])


def joined(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``.

    >>> joined(["a", "b", "c"]), joined(["a", "b"])
    ('a, b and c', 'a and b')
    """
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last
