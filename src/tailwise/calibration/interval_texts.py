"""Conformal intervals in words: which limits are in use, what they rest on, and what they guarantee."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tailwise.calibration.score_table import ROUNDING, Limits

if TYPE_CHECKING:
    from tailwise.calibration.conformal import ConformalIntervals
    from tailwise.calibration.widening import Group


def explain(intervals: ConformalIntervals, coverage: float, *, finite: bool) -> str:
    """Return a text about intervals at one coverage; with `finite`, ends are never infinite."""
    limits = intervals.limits(coverage)
    how = "the same for all rows" if intervals.mode == "global" else "by predicted region"
    lines = [f"Conformal intervals at {coverage:.4g} from {_rows(intervals.tables['all'].n)}, {how}."]
    if not intervals.can_cover(coverage):
        ends = "infinite"
        if finite:
            ends = "the smallest and the largest training label, or the largest error seen if it is more"
        return "\n".join([*lines, f"No promise: {too_few(intervals.rows, coverage)} The ends are {ends}."])
    if intervals.mode == "global":
        lines.append(f"  prediction {_in_words(limits['many'])}")
    else:
        lines += [
            f"  {region}: prediction {_in_words(own)} ({_basis(intervals, region)})"
            for region, own in limits.items()
        ]
    if intervals.column.names:
        lines += _by_group(intervals, coverage)
    same = "if new rows come from the same distribution as the held-out rows."
    if intervals.weighting == "none" and intervals.mode == "global" and not intervals.column.names:
        lines.append(f"Promise: at least {coverage:.4g} of new labels, on average over all rows, {same}")
    else:
        lines.append(
            f"About {coverage:.4g} of new labels are inside, on average over all rows, {same} The more "
            "rows were held out, the closer; there is no exact promise."
        )
    lines.append("No method can promise coverage given the true label.")
    some = [g for g in intervals.groups if g.name != "all" and g.slack * (1 - coverage) < 1 - ROUNDING]
    lines += [_widened(group, coverage) for group in some]
    return "\n".join(lines)


def too_few(rows: int, coverage: float) -> str:
    """Return a sentence that names the coverage, the rows it takes, and those there are."""
    needed = math.ceil(coverage / (1 - coverage) - ROUNDING)
    return f"{coverage:.4g} intervals take {_rows(needed)}, and there are {rows}."


def _widened(group: Group, coverage: float) -> str:
    kinds = {
        "rare": "with the rarest labels",
        "few": "with few-shot labels",
        "balanced": "weighted by the rarity of their labels",
        "given": "weighted as given",
    }
    share = 1 - group.slack * (1 - coverage)
    return f"Widened until {share:.4g} of {_rows(round(group.effective))} {kinds[group.name]} are inside."


def _by_group(intervals: ConformalIntervals, coverage: float) -> list[str]:
    """Lines that say how much wider the intervals of each group of the column are."""
    lines = [f"By the column {intervals.column.column}, these limits are multiplied:"]
    each = zip(intervals.column.names, *intervals.column_factors(coverage), strict=True)
    for name, (below, above), rows in each:
        lines.append(f"  {name}: by {below:.3g} below and {above:.3g} above ({_rows(round(rows))})")
    return [*lines, "  any other value: not"]


def _basis(intervals: ConformalIntervals, region: str) -> str:
    rows = intervals.tables[region].n if region in intervals.tables else 0
    return f"{_rows(rows)}, {intervals.share_of_own(region):.0%} its own limits, the rest the overall ones"


def _rows(count: int) -> str:
    return f"{count} held-out row" + ("" if count == 1 else "s")


def _in_words(limits: Limits) -> str:
    return f"{limits[0]:+.3g} to {limits[1]:+.3g} spreads"
