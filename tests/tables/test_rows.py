"""Splits: disjoint, balanced, with a share of every label. Equal rows are one row of their summed weight."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from tailwise import LabelBins
from tailwise.data import label_holdout, load_abalone, pooled_split
from tailwise.tables import rows as equal_rows
from tailwise.tables.rows import merge_equal_rows

labels = st.one_of(
    st.lists(st.integers(-5, 40), min_size=1, max_size=300),
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=300),
)


@given(st.lists(st.integers(0, 6), min_size=3, max_size=120), st.integers(0, 5), st.integers(0, 99))
def test_pooled_split_keeps_the_test_rows_of_all_seeds_apart(y: list[int], per_bin: int, seed: int) -> None:
    a, b = (pooled_split(y, per_bin=per_bin, seed=s) for s in (seed, seed + 1))
    for one, other in ((a, a), (a, b), (b, a)):
        assert not set(one.test) & (set(other.train) | set(other.valid))
    assert not set(a.train) & set(a.valid)
    values = np.array(y)
    for part in (a.valid, a.test):
        taken = np.minimum(per_bin, np.bincount(values, minlength=7) // 3)
        np.testing.assert_array_equal(np.bincount(values[part], minlength=7), taken)
    kept = np.bincount(values[a.train], minlength=7)
    assert (3 * kept >= np.bincount(values, minlength=7)).all()


@given(y=labels, share=st.floats(0.05, 0.9), seed=st.integers(0, 2**32))
def test_pooling_changes_only_what_small_bins_give(y: list[float], share: float, seed: int) -> None:
    index = LabelBins.from_labels(y).index(np.asarray(y))
    counts = np.bincount(index)
    large = (min(share, 1 - share) * counts >= 1)[index]
    plain, pooled = (label_holdout(y, share=share, seed=seed, pool_small=pool) for pool in (False, True))
    np.testing.assert_array_equal(plain[large[plain]], pooled[large[pooled]])
    rows, drawn = int((~large).sum()), int((~large[pooled]).sum())
    pools = 1 + min(share, 1 - share) * rows
    assert abs(drawn - share * rows) <= pools  # each pool rounds its own share, and has a row for each part
    assert len(pooled) < len(y)


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5, 0.85])
def test_every_label_has_its_share_of_chances_to_be_held_out_extremes_included(share: float) -> None:
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.uniform(0, 1, 200), [-9.0, 1.5, 1.6], np.geomspace(2, 40, 14)])
    counts = LabelBins.from_labels(y).counts
    assert (counts == 1).sum() >= 8 and counts.max() > 50  # a crowd, and labels alone in their bins
    draws = 500
    held = np.zeros(y.size)
    for seed in range(draws):
        held[label_holdout(y, share=share, seed=seed, pool_small=True)] += 1
    # Binomial(draws, share): five standard deviations, for 217 rows.
    assert np.abs(held - share * draws).max() < 5 * np.sqrt(draws * share * (1 - share))


@pytest.mark.parametrize("share", [0.0, 0.2, 0.9, 1.0])
@pytest.mark.parametrize("y", [[3.0], [1.0, 2.0], [0.0, 7.0, 50.0]])
def test_a_row_is_always_left_to_train_on(y: list[float], share: float) -> None:
    kept = [len(y) - len(label_holdout(y, share=share, seed=s, pool_small=True)) for s in range(100)]
    assert min(kept) >= 1 and (share > 0 or max(kept) == len(y))


X = np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [1.0, 2.0], [5.0, 6.0]])
Y = np.array([7.0, 8.0, 7.0, 9.0, 7.0])


def merged(x: Any, labels: np.ndarray = Y, weight: Any = None) -> dict[tuple[float, ...], float]:
    """The weight of each row that is left, by what the row holds."""
    rows, weights = merge_equal_rows(x, labels, weight)
    return {(*X[row], *np.atleast_1d(labels[row])): w for row, w in zip(rows, weights, strict=True)}


@pytest.mark.parametrize(
    "table",
    [X, pd.DataFrame(X), pl.DataFrame(X), sparse.csr_matrix(X)],
    ids=["array", "pandas", "polars", "sparse"],
)
def test_rows_with_the_same_inputs_and_label_are_merged(table: Any) -> None:
    assert merged(table) == {(1, 2, 7): 2, (3, 4, 8): 1, (1, 2, 9): 1, (5, 6, 7): 1}


def test_all_targets_must_agree() -> None:
    two = np.c_[Y, [0.0, 0.0, 1.0, 0.0, 0.0]]
    assert len(merged(X, two)) == 5
    assert merged(X, np.c_[Y, Y])[1, 2, 7, 7] == 2


def test_weights_are_added_and_rows_of_weight_0_left_out() -> None:
    assert merged(X, weight=[1, 0, 2, 3, 1]) == {(1, 2, 7): 3, (1, 2, 9): 3, (5, 6, 7): 1}


def test_weights_below_1_on_average_are_scaled_to_1() -> None:
    assert merged(X, weight=np.full(5, 0.2)) == merged(X)
    found = merged(X, weight=[0.1, 0.3, 0.1, 0.3, 0.0])  # the mean of those above 0 is 0.2
    assert found == pytest.approx({(1, 2, 7): 1.0, (3, 4, 8): 1.5, (1, 2, 9): 1.5})


@given(order=st.permutations(range(5)))
def test_the_order_of_the_rows_does_not_matter(order: list[int]) -> None:
    rows, weights = merge_equal_rows(X, Y, None)
    again, same = merge_equal_rows(X[order], Y[order], None)
    np.testing.assert_array_equal(X[order][again], X[rows])
    np.testing.assert_array_equal(same, weights)


def test_inputs_that_cannot_be_compared_are_kept_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = pd.DataFrame({"a": [[1], [2], [1]]})
    for x in ({"a": X[:3]}, np.zeros((3, 2, 2)), lists):
        rows, weights = merge_equal_rows(x, np.zeros(3), None)
        assert rows.tolist() == [0, 1, 2] and weights.tolist() == [1, 1, 1]
    monkeypatch.setattr(equal_rows, "_MAX_DENSE_CELLS", 9)
    assert len(merge_equal_rows(sparse.csr_matrix(X), Y, None)[0]) == 5
    monkeypatch.setattr(equal_rows, "MAX_MERGED_ROWS", 4)
    assert len(merge_equal_rows(X, Y, None)[0]) == 5


def test_weights_that_cannot_count_rows_are_refused() -> None:
    with pytest.raises(ValueError, match=r"sample_weight has 1e\+300, too large to count rows"):
        merge_equal_rows(X, Y, [1e300, 1, 1, 1, 1])
    with pytest.raises(ValueError, match="Negative values"):
        merge_equal_rows(X, Y, [-1, 1, 1, 1, 1])


def test_abalone_has_the_published_shape_and_range():
    table = load_abalone()
    assert table.shape == (4177, 9)
    assert not table.isna().any().any()
    assert table["Sex"].value_counts().to_dict() == {"M": 1528, "I": 1342, "F": 1307}
    assert (table["Rings"].min(), table["Rings"].max()) == (1, 29)
    # The published means of the whole weight and of the rings.
    assert table["WholeWeight"].mean() == pytest.approx(0.829, abs=5e-4)
    assert table["Rings"].mean() == pytest.approx(9.934, abs=5e-4)
