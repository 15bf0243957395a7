"""Distances between rows of mixed tables and their nearest rows, against plain loops."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tailwise.resampling import distances
from tailwise.resampling.distances import MixedTable, Points
from tests.table_samples import heom, mixed


def test_neighbours_equal_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distances, "BLOCK_ELEMENTS", 100)
    frame = mixed(45, seed=5)[0].reset_index(drop=True)
    frame["kind"], frame["name"] = frame["kind"].astype(object), frame["name"]
    frame.iloc[10] = frame.iloc[20]  # equal rows are neighbours at distance 0, not themselves
    columns = MixedTable(frame, None)
    space = Points(columns.embed(columns.numbers), columns.codes)
    gaps = heom(frame)
    index, distance = space.neighbours(np.arange(45), 6)
    others = np.sort(gaps + np.diag(np.full(45, np.inf)), axis=1)
    np.testing.assert_allclose(distance, others[:, :6], atol=1e-7)
    for i, row in enumerate(index):
        assert i not in row
        assert len(set(row)) == 6
        np.testing.assert_allclose(gaps[i, row], distance[i], atol=1e-7)
    some = np.array([3, 17])
    np.testing.assert_array_equal(space.neighbours(some, 6)[1], distance[some])


@pytest.mark.parametrize("count", [2, 3, 6, 7])
def test_safe_radius_equals_brute_force(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distances, "BLOCK_ELEMENTS", 10)
    frame = mixed(count)[0][["size", "name"]].reset_index(drop=True)
    columns = MixedTable(frame, None)
    space = Points(columns.embed(columns.numbers), columns.codes)
    radius = space.safe_radius(np.arange(count), np.random.default_rng(0))
    for i in range(count):
        assert radius[i] == pytest.approx(np.median(np.delete(heom(frame)[i], i)) / 2)


def test_missing_values_in_distances() -> None:
    frame = pd.DataFrame({"a": [0.0, 5.0, 10.0, np.nan, np.nan], "c": ["p", "p", None, None, "p"]})
    columns = MixedTable(frame, None)
    space = Points(columns.embed(columns.numbers), columns.codes)

    def gap(i: int, j: int) -> float:
        return float(space.take(np.array([i])).distance(space.take(np.array([j])))[0])

    assert gap(0, 4) == pytest.approx(1.0)  # missing and an end of the range
    assert gap(1, 4) == pytest.approx(np.sqrt(0.75))  # missing and the middle
    assert gap(3, 4) == pytest.approx(1.0)  # both missing; the categories differ
    assert gap(2, 3) == pytest.approx(1.0)  # both categories missing
