"""Equal rows become one row with the sum of their weights."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from tailwise.tables import rows as equal_rows
from tailwise.tables.rows import merge_equal_rows

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
