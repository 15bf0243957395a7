"""SmoteR, SMOGN and the relevance of labels, checked from the papers.

The oracles are numbers a reader can derive by hand and plain loops over rows (neighbours, segments,
labels); none of them reads the implementation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tailwise.resampling import smogn as resampling
from tailwise.resampling.smogn import (
    NEIGHBOURS,
    RESAMPLERS,
    MixedTable,
    Relevance,
    resampled,
    smogn,
    smoter,
)
from tests.table_samples import Array, heom, mixed, two_runs


def test_relevance_at_points_derived_by_hand() -> None:
    # 3 t^2 - 2 t^3 at a quarter, a half, three quarters: 10/64, 1/2, 54/64.
    relevance = Relevance(-4, 0, 8)
    y = [-99, -4, -3, -2, -1, 0, 2, 4, 6, 8, 99]
    expected = [1, 1, 54 / 64, 0.5, 10 / 64, 0, 10 / 64, 0.5, 54 / 64, 1, 1]
    np.testing.assert_allclose(relevance(y), expected, atol=1e-15)
    np.testing.assert_allclose(relevance([y, y[::-1]]), [expected, expected[::-1]], atol=1e-15)


def test_box_plot_points_of_normal_labels() -> None:
    # 0..8 have quartiles 2, 4, 6: without 100 on top no label lies beyond 6 + 1.5 * 4 = 12.
    assert Relevance.from_labels(range(9)) == (-np.inf, 4, np.inf)
    # 0..8 with -50, 13 and 100: quartiles 1.5, 4.5, 7.5, fences -7.5 and 16.5, so the adjacent values are
    # 0 and 13.
    y = [*range(9), -50, 13, 100]
    assert Relevance.from_labels(y) == (0, 4.5, 13)


@pytest.mark.parametrize("sign", [1, -1])
def test_zero_inflated_labels(sign: int) -> None:
    # 80 zeros and 1..20: the quartiles are all 0; the third quartile of 1..20 is 15.25.
    y = sign * np.concatenate([np.zeros(80), np.arange(1, 21)])
    relevance = Relevance.from_labels(y)
    assert relevance == ((-np.inf, 0, 15.25) if sign == 1 else (-15.25, 0, np.inf))
    assert relevance([0, sign * 20, -sign]).tolist() == [0, 1, 0]


def test_a_quartile_that_equals_the_median() -> None:
    # Quartiles 0, 1, 1 and IQR 1: the upper adjacent value is 2.5, above the median.
    y = [0, 0, 0, 1, 1, 1, 1, 1, 10]
    assert Relevance.from_labels(y) == (-np.inf, 1, 2.5)


def test_equal_labels_have_no_relevance() -> None:
    assert Relevance.from_labels([3.0] * 5)([1, 3, 9]).tolist() == [0, 0, 0]


def synthetic(X: Any, new_X: Any) -> NDArray[np.bool_]:
    """Rows of the new table that the old one does not have."""
    old = {tuple(row) for row in pd.DataFrame(X).itertuples(index=False)}
    return np.array([tuple(row) not in old for row in pd.DataFrame(new_X).itertuples(index=False)])


def heom_to(X: Array, rows: NDArray[np.intp]) -> Array:
    """Distances of all pairs of these rows; numbers are divided by their range over all rows."""
    unit = (X[rows] - X.min(0)) / np.ptp(X, 0)
    return np.asarray(np.linalg.norm(unit[:, None] - unit, axis=-1))


# ---------------------------------------------------------------- how many rows


@pytest.mark.parametrize("method", [smoter, smogn])
@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([0] * 90 + [20] * 10, [50, 50]),
        ([0] * 99 + [20], [50, 50]),
        # 4 low, 80 normal and 12 high ones: 32 of each
        ([-20] * 4 + [0] * 80 + [20] * 12, [32, 32, 32]),
    ],
)
def test_all_runs_of_labels_have_the_same_size(method: Any, labels: list[int], expected: list[int]) -> None:
    X, y = np.random.default_rng(0).normal(size=(len(labels), 2)), np.array(labels, float)
    new_X, new_y = method(X, y)
    assert len(new_X) == len(new_y)
    sizes = [(np.abs(new_y - label) < 5).sum() for label in sorted(set(labels))]
    assert sizes == expected


# ---------------------------------------------------------------- SmoteR's rows


@pytest.mark.parametrize("columns", [1, 3, 14])
def test_new_rows_lie_on_segments_to_near_neighbours_of_the_same_run(columns: int) -> None:
    X, y = two_runs(40, 10, columns)
    new_X, new_y = smoter(X, y)
    rare = np.flatnonzero(y > 15)
    gaps = heom(X) + np.diag(np.full(len(X), np.inf))
    near = {i: rare[np.argsort(gaps[i, rare])[:NEIGHBOURS]] for i in rare}
    fresh = synthetic(X, new_X)
    assert fresh.sum() == 25 - 10
    for row, label in zip(new_X[fresh], new_y[fresh], strict=True):
        matches = []
        for i in rare:
            for j in near[i]:
                t = (row - X[i]) @ (X[j] - X[i]) / ((X[j] - X[i]) @ (X[j] - X[i]))
                on_segment = 0 <= t <= 1 and np.allclose(row, X[i] + t * (X[j] - X[i]), rtol=1e-9)
                # On a segment the distances to its ends are as t to 1 - t.
                matches.append(on_segment and np.isclose(label, (1 - t) * y[i] + t * y[j]))
        assert any(matches)


@pytest.mark.parametrize("method", [smoter, smogn])
def test_categories_are_never_averaged_and_types_stay(method: Any) -> None:
    X, y = mixed(300)
    new_X, new_y = method(X, y)
    assert new_X.dtypes.equals(X.dtypes)
    assert list(new_X.columns) == list(X.columns)
    assert new_X.index.equals(pd.RangeIndex(len(new_X)))
    assert new_y.index.equals(new_X.index)
    assert (new_y.name, new_y.dtype) == ("target", np.float64)
    assert set(new_X["name"]) <= set("abc")
    assert set(new_X["kind"]) <= set("xy")
    assert (new_X["count"] == new_X["count"].round()).all()
    assert len(new_X[new_y > 15]) == 150


def test_label_is_weighted_by_the_mixed_distance() -> None:
    # Two rare rows: each new row lies between them, with a category from either.
    X = pd.DataFrame({"a": [*np.zeros(40), 10.0, 4.0], "c": [*["p"] * 40, "q", "r"]})
    y = np.array([*np.zeros(40), 20.0, 22.0])
    new_X, new_y = smoter(X, y)
    fresh = new_X[new_y > 15]
    assert len(fresh) == 21
    for (a, c), label in zip(fresh.iloc[2:].itertuples(index=False), new_y[new_y > 15][2:], strict=True):
        to_first = np.hypot((10 - a) / 10, c != "q")
        to_second = np.hypot((a - 4) / 10, c != "r")
        assert c in ("q", "r")
        assert label == pytest.approx((to_second * 20 + to_first * 22) / (to_first + to_second))


@pytest.mark.parametrize("method", [smoter, smogn])
def test_missing_values_stay_possible_and_do_not_spread(method: Any) -> None:
    X, y = mixed(400)
    rng = np.random.default_rng(2)
    X["count"] = X["count"].astype("Int64")
    X["empty"] = np.nan
    for name in ("size", "count", "name", "kind"):
        X.loc[X.index[rng.random(len(X)) < 0.3], name] = None
    new_X, new_y = method(X, y)
    assert new_X.dtypes.equals(X.dtypes)
    fresh = new_X[new_y > 15].iloc[60:]
    for name in ("size", "count", "name", "kind"):
        assert 0.1 < fresh[name].isna().mean() < 0.5
    assert new_X["empty"].isna().all()
    assert new_X["width"].notna().all()
    assert np.isfinite(new_y).all()


def test_neighbours_and_safe_radius_equal_brute_force() -> None:
    frame = mixed(45, seed=5)[0].reset_index(drop=True).astype({"kind": object})
    frame.iloc[10] = frame.iloc[20]  # equal rows are neighbours at distance 0, not themselves
    table, gaps = MixedTable(frame), heom(frame)
    index, distance = resampling.neighbours(table, np.arange(45), 6)
    others = np.sort(gaps + np.diag(np.full(45, np.inf)), axis=1)[:, :-1]
    np.testing.assert_allclose(distance, others[:, :6], atol=1e-7)
    np.testing.assert_allclose(np.take_along_axis(gaps, index, 1), distance, atol=1e-7)
    assert all(i not in row and len(set(row)) == 6 for i, row in enumerate(index))
    for rows in (np.arange(45), np.arange(7, 9), np.arange(3)):
        radius = resampling.safe_radius(table, rows, np.random.default_rng(0))
        for place, row in enumerate(rows):
            expected = np.median(np.delete(gaps[row, rows], place)) / 2
            assert radius[place] == pytest.approx(expected, abs=1e-7)


def test_missing_values_in_distances() -> None:
    frame = pd.DataFrame({"a": [0.0, 5.0, 10.0, np.nan, np.nan], "c": ["p", "p", None, None, "p"]})
    table = MixedTable(frame)
    one, two = np.array([0, 1, 3, 2]), np.array([4, 4, 4, 3])
    # Missing to an end of the range, and to its middle; other categories; both categories missing.
    expected = [1.0, np.sqrt(0.75), 1.0, 1.0]
    np.testing.assert_allclose(table.distance(one, table.points[two], table.codes[two]), expected)


# ---------------------------------------------------------------- SMOGN's rows


def test_choice_of_interpolation_by_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise an unsafe row is a copy of its seed, so the share of copies is known."""
    monkeypatch.setattr(resampling, "NOISE", 0.0)
    X, y = two_runs(10_000, 25, 2, seed=3)
    rare = np.flatnonzero(y > 15)
    gaps, unsafe = heom_to(X, rare), []
    for i in range(len(rare)):
        distances = np.sort(np.delete(gaps[i], i))
        unsafe.append((distances[:NEIGHBOURS] > np.median(distances) / 2).mean())
    new_X, new_y = smogn(X, y)
    copies = ~synthetic(X[rare], new_X[new_y > 15])[25:]
    assert len(copies) == 4987
    assert copies.mean() == pytest.approx(np.mean(unsafe), abs=0.03)
    assert 0.05 < copies.mean() < 0.95


def test_noise_has_the_size_that_the_paper_gives() -> None:
    # A single rare row has no neighbours: all new rows are noise around it.
    rng = np.random.default_rng(0)
    X, y = np.vstack([rng.normal(size=(6000, 2)) * [1, 10], [[0.3, 1.0]]]), np.append(np.zeros(6000), 50.0)
    new_X, new_y = smogn(X, y)
    fresh, labels, spread = new_X[new_y > 15], new_y[new_y > 15], 0.02 * X.std(0)
    assert len(fresh) == 3000
    np.testing.assert_allclose((fresh - X[-1]).std(0), spread, rtol=0.1)
    np.testing.assert_allclose((fresh - X[-1]).mean(0), 0, atol=0.1 * spread.max())
    below = labels[labels < 50]  # labels stay within their range, whose end the row has
    assert np.sqrt(((below - 50) ** 2).mean()) == pytest.approx(0.02 * y.std(), rel=0.1)


# ---------------------------------------------------------------- hard cases


@pytest.mark.parametrize("method", [smoter, smogn])
@pytest.mark.parametrize("y", [np.full(20, 7.0), np.arange(20.0)])
def test_no_rare_label_warns_and_changes_nothing(method: Any, y: Array) -> None:
    X = pd.DataFrame({"a": np.arange(20.0), "b": list("xy") * 10}, index=range(5, 25))
    with pytest.warns(UserWarning, match="^no label lies beyond the whiskers"):
        new_X, new_y = method(X, y)
    pd.testing.assert_frame_equal(new_X, X.reset_index(drop=True))
    np.testing.assert_array_equal(new_y, y)


class Chaos:
    """Random tables of any kind of column, for the law below."""

    column = st.sampled_from(
        ["float", "int", "text", "category", "bool", "gaps", "constant", "Int64", "date"]
    )

    @staticmethod
    def make(kinds: list[str], rows: int, seed: int) -> pd.DataFrame:
        rng = np.random.default_rng(seed)
        makers = {
            "float": lambda: rng.normal(size=rows),
            "int": lambda: rng.integers(-5, 5, rows),
            "text": lambda: pd.Series(rng.choice(["a", "bb", None], rows), dtype=object),
            "category": lambda: pd.Categorical(rng.choice(["x", "y"], rows)),
            "bool": lambda: rng.random(rows) < 0.5,
            "gaps": lambda: np.where(rng.random(rows) < 0.5, np.nan, rng.normal(size=rows)),
            "constant": lambda: np.full(rows, 3.5),
            "Int64": lambda: pd.array(rng.choice([1, 2, None], rows), dtype="Int64"),
            "date": lambda: pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 9, rows), unit="D"),
        }
        return pd.DataFrame({f"{kind}{i}": makers[kind]() for i, kind in enumerate(kinds)}, index=range(rows))


@pytest.mark.filterwarnings("ignore:no label lies beyond")
@settings(max_examples=40)
@given(
    st.lists(Chaos.column, min_size=1, max_size=6),
    st.lists(st.integers(-3, 30) | st.floats(-1e3, 1e3), min_size=1, max_size=60),
    st.sampled_from(["smoter", "smogn"]),
    st.integers(0, 99),
)
def test_random_tables_never_crash(kinds: list[str], y: list[float], name: str, seed: int) -> None:
    X, labels = Chaos.make(kinds, len(y), seed), np.array(y, float)
    new_X, new_y = RESAMPLERS[name](X, labels, seed=seed)
    assert len(new_X) == len(new_y) >= 1
    assert new_X.dtypes.equals(X.dtypes)
    assert np.isfinite(new_y).all()
    assert new_y.min() >= labels.min()
    assert new_y.max() <= labels.max()
    for column, kind in zip(X, kinds, strict=True):
        if kind in ("text", "category", "bool", "date"):
            assert set(new_X[column].dropna()) <= set(X[column].dropna())
        elif X[column].notna().all():
            assert new_X[column].between(X[column].min(), X[column].max()).all()


# ---------------------------------------------------------------- errors


def test_wrong_tables() -> None:
    X, y = two_runs(20, 5)
    with pytest.raises(ValueError, match="flatten images"):
        smoter(X.reshape(25, 3, 1), y)
    with pytest.raises(ValueError, match="pass a DataFrame"):
        smoter(X.astype(str), y)
    with pytest.raises(ValueError, match="25 labels"):
        smoter(X[:24], y)
    with pytest.raises(ValueError, match="one label per row"):
        smoter(X, np.column_stack([y, y]))
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame.loc[4, "b"] = np.inf
    with pytest.raises(ValueError, match="column 'b' holds an infinity in row 4"):
        smoter(frame, y)
    with pytest.raises(ValueError, match="column 'b' holds values"):
        smoter(frame.assign(b=[[1]] * 25), y)
    with pytest.raises(ValueError, match="no column 9"):
        smoter(X, y, categorical=[9])


def test_weights_are_repeated_rows_and_flags_stay_flags() -> None:
    X, y = two_runs(60, 6, 2)
    X[:, 1] = np.arange(66) % 2
    weight = np.where(y > 15, 2.0, 1.0)
    x, labels = resampled("smogn", torch.from_numpy(X).float(), y, weight, seed=0)
    # 60 rows and 6 rare ones of weight 2: 72 rows, half of them relevant after balancing
    assert len(x) == len(labels) == 72 and x.dtype == torch.float32
    relevance = Relevance.from_labels(np.repeat(y, weight.astype(int)))
    assert int((relevance(labels) >= 0.8).sum()) == 36
    assert set(x[:, 1].tolist()) == {0.0, 1.0}
    with pytest.raises(ValueError, match="smogn needs whole-number weights"):
        resampled("smogn", torch.from_numpy(X).float(), y, weight / 3, seed=0)
