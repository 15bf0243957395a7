"""Columns of any kind become numbers, and surprises in new rows are warned of."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

from tailwise.tables import columns, encode
from tailwise.tables.encode import NumericEncoder, TablePreprocessor, as_matrix
from tests.table_samples import kinds


def frame(rows: int = 200) -> pd.DataFrame:
    """A table with columns of every kind; `number` and `text` have gaps."""
    rng = np.random.default_rng(1)
    kind = rng.choice(["a", "b", "c"], rows)
    return pd.DataFrame(
        {
            "number": np.where(rng.random(rows) < 0.1, np.nan, rng.normal(size=rows)),
            "kind": pd.Categorical(kind),
            "text": np.where(rng.random(rows) < 0.1, None, kind),
            "flag": rng.random(rows) < 0.5,
            "day": pd.date_range("2024-01-01", periods=rows, freq="h"),
            "empty": np.nan,
            "same": 1.0,
        },
        index=[f"row{i}" for i in range(rows)],
    )


@pytest.fixture(scope="module")
def fitted() -> TablePreprocessor:
    return TablePreprocessor.fit(frame())


def warned(preprocessor: TablePreprocessor, x: Any) -> list[str]:
    """The warnings about new rows, up to what is done with them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert np.isfinite(preprocessor.transform(x)).all()
    return [str(warning.message).partition(":")[0] for warning in caught]


# -- numbers -------------------------------------------------------------------------------------


def test_numbers_are_scaled_bounded_and_marked_where_missing() -> None:
    x = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [np.nan]])
    encoder = NumericEncoder.fit(x)
    assert encoder.out_dim == 2
    scale = 2 / 1.349  # quartiles 1 and 3
    assert (encoder.center.item(), encoder.scale.item()) == (2.0, pytest.approx(scale))
    out = encoder(torch.tensor([[2.0], [4.0], [1e9], [float("nan")]], dtype=torch.float64))
    z = 2 / scale
    expected = [[0.0, 0.0], [z / np.sqrt(1 + (z / 4) ** 2), 0.0], [4.0, 0.0], [0.0, 1.0]]
    np.testing.assert_allclose(out, expected, rtol=1e-6)


@pytest.mark.parametrize("mistake", [1e6, -1e20, 1e200])
def test_a_mistaken_number_does_not_drown_its_column(mistake: float) -> None:
    rng = np.random.default_rng(0)
    numbers = np.c_[rng.normal(size=500), rng.random(500) < 0.1].astype(float)
    with_mistake = numbers.copy()
    with_mistake[7] = mistake
    clean, robust = NumericEncoder.fit(numbers), NumericEncoder.fit(with_mistake)
    np.testing.assert_allclose(robust.scale[0], clean.scale[0], rtol=0.05)
    assert 0.2 < robust.scale[1] < 0.4  # mostly zeros, some ones
    assert robust(torch.from_numpy(with_mistake)).abs().max() <= 4.01


def test_a_matrix_is_dense_float64_without_infinities(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.array([[1, 2], [3, 4]])
    for given in (numbers, sparse.csr_matrix(numbers), pd.DataFrame(numbers), numbers.T.copy().T):
        found = as_matrix(given)
        assert found.dtype == np.float64 and found.flags.c_contiguous
        np.testing.assert_array_equal(found, numbers)
    with pytest.raises(ValueError, match="column 1 holds an infinity"):
        as_matrix(np.array([[1.0, np.inf]]))
    with pytest.raises(ValueError, match="column 'b' holds an infinity or a number too large"):
        as_matrix(pd.DataFrame({"a": [1.0, 2.0], "b": pd.Series([10.0, "inf"], dtype=object)}))
    monkeypatch.setattr(encode, "MAX_DENSE", 3)
    with pytest.raises(ValueError, match="sparse matrix of 2 x 2 is too large to make dense"):
        as_matrix(sparse.csr_matrix(numbers))


# -- other columns -------------------------------------------------------------------------------


def test_tables_without_columns_of_use_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no column of X holds a value \(a, b\)"):
        TablePreprocessor.fit(pd.DataFrame({"a": [None] * 9, "b": [None] * 9}, dtype=object))
    with pytest.raises(ValueError, match="column name 'a' occurs twice"):
        TablePreprocessor.fit(pd.DataFrame(np.eye(2), columns=["a", "a"]))


def test_numbers_are_those_of_skrub() -> None:
    skrub = pytest.importorskip("skrub")
    from sklearn.preprocessing import OneHotEncoder

    x = kinds()
    texts = skrub.StringEncoder(n_components=30, random_state=0)
    known = OneHotEncoder(dtype=np.float32, handle_unknown="ignore", sparse_output=False)
    # skrub fits each column by itself, and mixed objects are texts here.
    oracle = skrub.TableVectorizer(low_cardinality=known, high_cardinality=texts)
    as_text = x.assign(mixed=x["mixed"].where(x["mixed"].isna(), x["mixed"].astype(str)))
    expected = oracle.fit(as_text).transform(as_text)
    preprocessor = TablePreprocessor.fit(x)
    assert preprocessor.names == tuple(expected.columns)
    np.testing.assert_array_equal(preprocessor.matrix(x), expected.to_numpy(np.float64))
    for row in (0, 7):  # one row has the numbers that it has among others
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one = preprocessor.matrix(x[row : row + 1])
        np.testing.assert_array_equal(one, expected[row : row + 1].to_numpy(np.float64))


def test_polars_and_pyarrow_give_the_numbers_of_pandas() -> None:
    polars = pytest.importorskip("polars")
    x = kinds().drop(columns=["mixed", "code"])
    expected = TablePreprocessor.fit(x).matrix(x)
    for other in (polars.from_pandas(x), x.convert_dtypes(dtype_backend="pyarrow")):
        preprocessor = TablePreprocessor.fit(other)
        for table in (x, other):
            np.testing.assert_array_equal(preprocessor.matrix(table), expected)


def test_each_column_has_few_features_and_a_name_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pd.DataFrame({f"c{place}": [f"text {row} {place}" for row in range(9)] for place in range(4)})
    table["kind"], table["kind_a"] = ["a", "b", "a"] * 3, 1.0
    names = TablePreprocessor.fit(table).names
    assert names is not None and names[-3:] == ("kind_a", "kind_b", "kind_a_") and len(names) == 4 * 9 + 3
    monkeypatch.setattr(encode, "MAX_FEATURES", 15)
    assert TablePreprocessor.fit(table).out_dim == 4 * 3 + 3
    monkeypatch.setattr(columns, "MOST_COLUMNS", 4)
    with pytest.raises(ValueError, match="5 columns are not numbers, and at most 4 can be encoded: leave"):
        TablePreprocessor.fit(table)


# -- new rows unlike the training rows -------------------------------------------------------------


def test_columns_of_another_kind_than_at_fit_are_named(fitted: TablePreprocessor) -> None:
    x = frame()
    commas = x["number"].map("{:.3f}".format).str.replace(".", ",")
    with pytest.raises(
        ValueError, match=r"column 'number' held numbers at fit, but row \d+ holds '-?\d,\d+'"
    ):
        fitted.transform(x.assign(number=commas))
    with pytest.raises(ValueError, match="column 'day' held dates at fit, but row 0 holds 'soon'"):
        fitted.transform(x.assign(day="soon"))
    with pytest.raises(ValueError, match="column 'day' held dates at fit, but row 0 holds '5'"):
        fitted.transform(x.assign(day=5))
    with pytest.raises(ValueError, match="column 'number' held numbers at fit, but row 0 holds '2024"):
        fitted.transform(x.assign(number=x["day"]))
    numbers = x[["number", "same"]]
    plain = TablePreprocessor.fit(numbers)
    with pytest.raises(ValueError, match="column 'same' held numbers at fit, but row 0 holds 'one'"):
        plain.transform(numbers.assign(same="one"))
    with pytest.raises(ValueError, match="column 'same' held numbers at fit, but row 0 holds '2024"):
        plain.transform(numbers.assign(same=x["day"]))


@pytest.mark.parametrize("columns", [["number", "text"], ["number"]])
def test_stray_cells_of_another_kind_are_missing_with_a_warning(columns: list[str]) -> None:
    x = frame()[columns]
    preprocessor = TablePreprocessor.fit(x)
    numbers = x["number"].astype(object)
    numbers.iloc[[3, 5]] = "much"
    with pytest.warns(UserWarning, match=r"row 3 holds 'much' \(2 such of 200\): treated as missing"):
        found = preprocessor.transform(x.assign(number=numbers))
    numbers.iloc[[3, 5]] = np.nan
    np.testing.assert_array_equal(found, preprocessor.transform(x.assign(number=numbers)))


def test_columns_that_were_never_missing_are_warned_of(fitted: TablePreprocessor) -> None:
    x = frame()
    # `number` and `text` had gaps at fit, `empty` had nothing else; a date is one column, not five.
    assert warned(fitted, x.assign(**dict.fromkeys(x, None))) == [
        f"column '{name}' was never missing at fit, but is in 200 of 200 rows"
        for name in ("kind", "flag", "day", "same")
    ]
    gaps = x.assign(same=x["same"].where(np.arange(200) >= 11))
    assert warned(fitted, gaps) == ["column 'same' was never missing at fit, but is in 11 of 200 rows"]
    assert warned(fitted, gaps[2:]) == warned(fitted, x) == []  # 9 of 198


def test_frequent_new_categories_are_warned_of(fitted: TablePreprocessor) -> None:
    x = frame()
    new = x.assign(kind="never seen", text=x["text"].where(x["flag"], "nor this"))
    many = (~x["flag"]).sum()
    assert warned(fitted, new) == [
        "column 'kind' holds values unknown at fit, such as 'never seen', in 200 of 200 rows",
        f"column 'text' holds values unknown at fit, such as 'nor this', in {many} of 200 rows",
    ]
    few = x.assign(text=x["text"].where(np.arange(200) >= 10, "rare"))
    assert warned(fitted, few) == []
    expected = "column 'text' holds values unknown at fit, such as 'rare', in {0} of {0} rows"
    for rows in (1, 3):
        assert warned(fitted, few[:rows]) == [expected.format(rows)]


def test_numbers_far_outside_their_range_are_warned_of() -> None:
    encoder = TablePreprocessor.fit(pd.DataFrame({"size": np.arange(10.0), "kind": list("ab" * 5)}))
    said = r"'size' holds numbers such as 31, far outside 0 to 9 at fit, in 1 of 1 rows"
    with pytest.warns(UserWarning, match=said):
        encoder.matrix(pd.DataFrame({"size": [31.0], "kind": ["a"]}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.matrix(pd.DataFrame({"size": [17.0, -8.0], "kind": ["a", "b"]}))
