"""Conformal intervals as plain numbers, strings and lists, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np

from tailwise.core.labels import LabelBins, checked_labels
from tailwise.core.lookup import check_name
from tailwise.uncertainty.column_groups import ColumnGroups
from tailwise.uncertainty.score_table import ScoreTable, check_keys
from tailwise.uncertainty.widening import REGIONS, Group

if TYPE_CHECKING:
    from tailwise.uncertainty.conformal import ConformalIntervals

Mode = Literal["global", "region"]
KEYS = ("mode", "weighting", "min_rows", "many", "few", "edges", "counts", "tables")
"""What files of all versions have."""


def state_of(intervals: ConformalIntervals) -> dict[str, Any]:
    """Return plain numbers, strings and lists, ready for JSON."""
    return {
        "mode": intervals.mode,
        "weighting": intervals.weighting,
        "min_rows": intervals.min_rows,
        "many": intervals.many,
        "few": intervals.few,
        "held_out": intervals.held_out,
        "split": intervals.split,
        "votes": intervals.votes,
        "edges": intervals.bins.edges.tolist(),
        "counts": intervals.bins.counts.tolist(),
        "rule": intervals.bins.rule,
        "tables": {name: table.to_dict() for name, table in intervals.tables.items()},
        "groups": [group.to_dict() for group in intervals.groups],
        "mean_sides": intervals.mean_sides.tolist(),
        "column": intervals.column.to_dict(),
    }


def fields_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `ConformalIntervals` from `state_of`, or say what is wrong with the state."""
    needed = {*KEYS, "held_out", "split", "votes", "rule", "groups", "mean_sides"}
    check_keys(state, needed, ("column",))  # older files have no column
    column = ColumnGroups.from_dict(state["column"])
    groups = tuple(Group.from_dict(group) for group in state["groups"])
    cells = len(REGIONS) * (len(column.names) + 1)
    if any(group.regions.max() >= cells or group.regions.min() < 0 for group in groups):
        raise ValueError(f"the regions of the groups must lie between 0 and {cells - 1}")
    if column.names and (not groups or groups[0].name != "all"):
        raise ValueError("limits by a column need the scores of all rows")
    mean_sides = np.asarray(state["mean_sides"], np.float64)
    if mean_sides.shape != (cells, 2):
        raise ValueError(f"mean_sides must have the shape ({cells}, 2), got {mean_sides.shape}")
    return {
        **former_fields(state, str(state["rule"])),
        "groups": groups,
        "column": column,
        "mean_sides": mean_sides,
        "held_out": bool(state["held_out"]),
        "split": float(state["split"]),
        "votes": bool(state["votes"]),
    }


def former_fields(state: Mapping[str, Any], rule: str) -> dict[str, Any]:
    """Return the fields that files of all versions have, from a state with `KEYS`."""
    tables = {name: ScoreTable.from_dict(table) for name, table in state["tables"].items()}
    check_keys(tables, {"all"}, REGIONS)
    edges = checked_labels(state["edges"], "edges")
    counts = np.asarray(state["counts"], np.int64)
    if counts.shape != (edges.size - 1,) or (np.diff(edges) <= 0).any():
        raise ValueError(f"{counts.size} bins need {counts.size + 1} edges in ascending order")
    return {
        "mode": checked_mode(state["mode"]),
        "bins": LabelBins(edges, counts, rule),
        "tables": tables,
        "weighting": str(state["weighting"]),
        "min_rows": int(state["min_rows"]),
        "many": int(state["many"]),
        "few": int(state["few"]),
    }


def checked_mode(mode: object) -> Mode:
    """Return the mode of intervals, or name the nearest one."""
    check_name("mode", mode, get_args(Mode))
    return cast("Mode", mode)
