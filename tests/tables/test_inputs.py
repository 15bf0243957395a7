"""Inputs of any kind: counted, taken by rows, and turned into tensors."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import sparse
from torch.utils.data import DataLoader, TensorDataset

from tailwise.tables.inputs import as_tensors, row_count, take_rows

NUMBERS = np.arange(12.0).reshape(4, 3)
ROWS = np.array([2, 0])


@pytest.mark.parametrize(
    "given",
    [
        NUMBERS,
        NUMBERS.tolist(),
        list(torch.from_numpy(NUMBERS)),
        torch.from_numpy(NUMBERS),
        sparse.csr_matrix(NUMBERS),
        pd.DataFrame(NUMBERS, index=list("wxyz")),
        pl.DataFrame(NUMBERS),
    ],
    ids=["array", "list", "tensors", "tensor", "sparse", "pandas", "polars"],
)
def test_rows_of_any_input(given: Any) -> None:
    assert row_count(given) == 4
    taken = take_rows(given, ROWS)
    assert row_count(taken) == 2
    tensor = as_tensors(taken)
    assert tensor.dtype == torch.float32
    np.testing.assert_array_equal(tensor, NUMBERS[ROWS])


def test_several_inputs_are_taken_and_turned_together() -> None:
    ids = [[1, 2], [3, 4], [5, 6], [7, 8]]
    for given in ((NUMBERS, ids), {0: NUMBERS, 1: ids}):
        assert row_count(given) == 4
        taken = as_tensors(take_rows(given, ROWS))
        assert type(taken) is type(given)
        np.testing.assert_array_equal(taken[0], NUMBERS[ROWS])
        np.testing.assert_array_equal(taken[1], [[5, 6], [1, 2]])
        assert taken[1].dtype == torch.int64
    with pytest.raises(ValueError, match=r"different numbers of rows: \[4, 2\]"):
        row_count((NUMBERS, ids[:2]))


@pytest.mark.parametrize("function", [row_count, as_tensors])
@pytest.mark.parametrize("wrap", [lambda d: d, DataLoader], ids=["Dataset", "DataLoader"])
def test_data_sets_of_torch_are_refused(function: Any, wrap: Any) -> None:
    given = wrap(TensorDataset(torch.ones(3, 2)))
    with pytest.raises(TypeError, match=rf"X is a {type(given).__name__}: .*tailwise.training.loop.fit"):
        function(given)
