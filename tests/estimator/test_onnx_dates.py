"""Dates in an ONNX graph, against pandas and polars."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailwise.onnx.dates import MISSING, PARTS, date_parts, zone_changes
from tailwise.onnx.nodes import Nodes
from tests.estimator.onnx_graphs import ran


def parts(times: Any, zone: str | None = None, library: str = "pandas") -> Any:
    """The parts that a graph makes of times in UTC."""
    nodes = Nodes()
    counts = np.asarray(times, "datetime64[us]").astype(np.int64)
    return ran(nodes, date_parts(nodes, "day", PARTS, zone, library), day=counts)


def expected(times: Any, zone: str | None = None) -> Any:
    local = pd.DatetimeIndex(times)
    if zone is not None:
        local = local.tz_localize("UTC").tz_convert(zone)
    seconds = times.astype("datetime64[us]").astype(np.int64) / 1e6
    columns = [local.year, local.month, local.day, local.hour, seconds.astype(np.float32)]
    return np.stack([np.asarray(column, np.float64) for column in columns], axis=1)


def test_every_day_of_five_centuries_and_times_of_all_years() -> None:
    days = np.arange("1799-12-30", "2301-01-03", dtype="datetime64[D]").astype("datetime64[us]")
    np.testing.assert_array_equal(parts(days), expected(days))
    rng = np.random.default_rng(0)
    lowest, highest = (np.datetime64(day, "us").astype(np.int64) for day in ("0001-01-01", "9999-12-31"))
    times = rng.integers(lowest, highest, 2000).astype("datetime64[us]")
    last = np.array(["1969-12-31T23:59:59.999999", "2000-02-29T23:00", "1900-03-01"], "datetime64[us]")
    times = np.concatenate([times, last, last - np.timedelta64(1, "us")])
    np.testing.assert_array_equal(parts(times), expected(times))


def test_a_missing_date_has_no_parts() -> None:
    found = parts(np.array(["NaT", "2024-02-29"], "datetime64[us]"))
    assert np.isnan(found[0]).all() and found[1, :4].tolist() == [2024, 2, 29, 0]
    assert np.datetime64("NaT").astype(np.int64) == MISSING


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Pacific/Apia", "Africa/Casablanca", "UTC+05:30"])
def test_hours_are_those_of_the_time_zone(zone: str) -> None:
    changes, offsets = zone_changes(zone, "pandas")
    rng = np.random.default_rng(0)
    lowest, highest = (np.datetime64(day, "us").astype(np.int64) for day in ("1700-01-01", "3500-01-01"))
    near = [changes + step for step in (-1, 0)]
    times = np.concatenate([*near, rng.integers(lowest, highest, 1000)]).astype("datetime64[us]")
    np.testing.assert_array_equal(parts(times, zone), expected(times, zone))
    assert len(offsets) == len(changes) + 1


def test_clocks_change_when_they_do() -> None:
    changes, offsets = zone_changes("Europe/Berlin", "pandas")
    assert np.datetime64("2024-03-31T01:00", "us").astype(np.int64) in changes
    assert np.datetime64("2024-10-27T01:00", "us").astype(np.int64) in changes
    hours = offsets[
        np.searchsorted(changes, np.array(["2024-01-01", "2024-07-01"], "M8[us]").astype(np.int64))
    ]
    assert (hours / 3.6e9).tolist() == [1, 2]
    changes, offsets = zone_changes("UTC", "pandas")
    assert len(changes) == 0 and offsets.tolist() == [0]


def test_polars_has_its_own_years_of_summer_time_and_whole_milliseconds() -> None:
    pl = pytest.importorskip("polars")
    times = np.array(["2050-07-01", "2400-07-01", "2900-07-01", "1970-01-01T00:00:00.0019"], "M8[us]")
    local = pl.Series(times).dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Berlin")
    found = parts(times, "Europe/Berlin", "polars")
    np.testing.assert_array_equal(found[:, 3], local.dt.hour().to_numpy())
    assert found[3, 4] == np.float32(0.001)
