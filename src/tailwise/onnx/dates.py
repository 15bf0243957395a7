"""Dates in an ONNX graph: a count of microseconds becomes year, month, day, hour and seconds.

The calendar is integer arithmetic. A time zone is a table of its changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailwise.onnx.nodes import Nodes

PARTS = ("year", "month", "day", "hour", "total_seconds")
"""Parts of a date that a graph can compute."""
MISSING = -(2**63)
"""A missing date; pandas and NumPy use the same number for NaT."""
HOUR, DAY = 3_600_000_000, 86_400_000_000
"""In microseconds."""
FIRST, FROM, UNTIL = "1800-01-01", "2100-01-01", "2500-01-01"
"""Time zones had no changes before the first date. After the second, they repeat: the calendar is the same
after 400 years, days of the week included."""


def date_parts(nodes: Nodes, column: str, parts: Sequence[str], zone: str | None, library: str) -> str:
    """Return the parts of a column of dates, float64 (N, P), NaN where missing.

    The column is int64 (N,): microseconds since 1970 in UTC, or of a clock without a time zone. Year, month,
    day and hour are those of the time zone; its changes are those that the library of tables knows.
    """
    missing = nodes.add("Equal", column, nodes.constant(MISSING))
    time = nodes.add("Where", missing, nodes.constant(0), column)
    local = time if zone is None else nodes.add("Add", time, _offset(nodes, time, zone, library))
    days = _floor(nodes, local, DAY)
    made = dict(zip(PARTS, _civil(nodes, days), strict=False))
    rest = nodes.add("Sub", local, nodes.add("Mul", days, nodes.constant(DAY)))
    made["hour"] = nodes.add("Div", rest, nodes.constant(HOUR))
    unit = 1_000 if library == "polars" else 1  # for polars, skrub counts whole milliseconds
    count = _floor(nodes, time, unit) if unit > 1 else time
    seconds = nodes.add("Div", nodes.cast(count, np.float64), nodes.constant(1e6 / unit, np.float64))
    made["total_seconds"] = nodes.cast(seconds, np.float32)  # as skrub rounds it
    columns = [nodes.column_of(nodes.cast(made[part], np.float64)) for part in parts]
    values = nodes.add("Concat", *columns, axis=1)
    return nodes.add("Where", nodes.column_of(missing), nodes.constant(np.nan, np.float64), values)


def _floor(nodes: Nodes, value: str, by: int) -> str:
    """Quotient, rounded down; ONNX rounds towards 0."""
    divisor = nodes.constant(by)
    return nodes.add("Div", nodes.add("Sub", value, nodes.add("Mod", value, divisor)), divisor)


def _civil(nodes: Nodes, days: str) -> tuple[str, str, str]:
    """Year, month and day of a count of days since 1970, in the Gregorian calendar.

    Years are counted from March, so that a leap day is the last day of a year, in periods of 400 years.
    """

    def times(value: str, by: int, plus: int = 0) -> str:
        product = nodes.add("Mul", value, nodes.constant(by))
        return nodes.add("Add", product, nodes.constant(plus)) if plus else product

    def over(value: str, by: int) -> str:
        return nodes.add("Div", value, nodes.constant(by))

    def sub(value: str, other: str) -> str:
        return nodes.add("Sub", value, other)

    since = nodes.add("Add", days, nodes.constant(719_468))  # days since 1 March of the year 0
    period = _floor(nodes, since, 146_097)
    day = sub(since, times(period, 146_097))  # of the period
    leap = nodes.add("Add", sub(day, over(day, 1_460)), over(day, 36_524))
    year = over(sub(leap, over(day, 146_096)), 365)  # of the period
    before = nodes.add("Add", times(year, 365), sub(over(year, 4), over(year, 100)))
    day = sub(day, before)  # of the year
    month = over(times(day, 5, 2), 153)  # since March
    day = nodes.add("Add", sub(day, over(times(month, 153, 2), 5)), nodes.constant(1))
    late = nodes.cast(nodes.add("Less", nodes.constant(9), month), np.int64)  # January or February
    year = nodes.add("Add", nodes.add("Add", year, times(period, 400)), late)
    month = nodes.add("Sub", nodes.add("Add", month, nodes.constant(3)), times(late, 12))
    return year, month, day


def _offset(nodes: Nodes, time: str, zone: str, library: str) -> str:
    """Microseconds by which the clocks of a time zone are ahead of UTC at a time."""
    changes, offsets = zone_changes(zone, library)
    if not len(changes):
        return nodes.constant(offsets[0])
    start, end = (int(np.datetime64(day, "us").astype(np.int64)) for day in (FROM, UNTIL))
    since = nodes.add("Sub", time, nodes.constant(start))
    earlier = nodes.add("Mod", since, nodes.constant(end - start))
    earlier = nodes.add("Add", earlier, nodes.constant(start))
    time = nodes.add("Where", nodes.add("Less", time, nodes.constant(end)), time, earlier)
    passed = nodes.add("LessOrEqual", nodes.constant(changes), nodes.column_of(time))
    count = nodes.add("ReduceSum", nodes.cast(passed, np.int64), nodes.constant([1]), keepdims=0)
    return nodes.add("Gather", nodes.constant(offsets), count)


def zone_changes(zone: str, library: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return when clocks change, (K,), and how far they are ahead of UTC between, (K + 1,), in microseconds.

    `library` is ``"pandas"`` or ``"polars"``: they do not agree on the years after 2099.
    """
    ahead = _polars_ahead if library == "polars" else _pandas_ahead
    days = np.arange(FIRST, UNTIL, dtype="datetime64[D]").astype("datetime64[s]")
    found = ahead(days, zone)
    places = np.flatnonzero(found[1:] != found[:-1])
    low, high, offsets = days[places], days[places + 1], found[places]
    for _ in range(17):  # to a second: 2 ** 17 of them are more than a day
        middle = low + (high - low) // 2
        same = ahead(middle, zone) == offsets
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    all_offsets = np.concatenate([offsets, found[-1:]]) * 1_000_000
    return high.astype("datetime64[us]").astype(np.int64), all_offsets


def _pandas_ahead(times: NDArray[np.datetime64], zone: str) -> NDArray[np.int64]:
    import pandas as pd

    local = pd.DatetimeIndex(times).tz_localize("UTC").tz_convert(zone).tz_localize(None)
    return _seconds_between(local.to_numpy(), times)


def _polars_ahead(times: NDArray[np.datetime64], zone: str) -> NDArray[np.int64]:
    import polars as pl

    utc = pl.Series(times.astype("datetime64[us]")).dt.replace_time_zone("UTC")
    return _seconds_between(utc.dt.convert_time_zone(zone).dt.replace_time_zone(None).to_numpy(), times)


def _seconds_between(local: Any, times: NDArray[np.datetime64]) -> NDArray[np.int64]:
    ahead: NDArray[np.int64] = (local.astype("datetime64[s]") - times).astype(np.int64)
    return ahead
