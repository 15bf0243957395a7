"""Quick encoding gives the numbers of `TablePreprocessor.matrix`."""

import numpy as np
import pandas as pd
import pytest

from tailwise.tables import quick_encoding
from tailwise.tables.encode import TablePreprocessor
from tailwise.tables.quick_encoding import QuickEncoder

RNG = np.random.default_rng(0)


def table(rows: int, values: str = "uvw") -> pd.DataFrame:
    numbers = RNG.normal(size=rows)
    return pd.DataFrame(
        {
            "c": RNG.choice([*values, None, " "], rows),
            "x": np.where(numbers > 1, np.nan, numbers),
            "constant": np.ones(rows),
            "k": RNG.integers(0, 9, rows),
            "flag": RNG.random(rows) < 0.5,
        }
    )


@pytest.mark.filterwarnings("ignore:column")  # `matrix` warns of new categories
def test_numbers_and_categories_equal_those_of_skrub(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = TablePreprocessor().fit(table(300))
    quick = QuickEncoder(encoder)
    calls = []
    for chunk in (table(100), table(50, "vxyz"), table(100, "uvwxyz"), table(40).assign(x=1e300)):
        before = len(quick.known["c"])
        assert np.array_equal(quick.matrix(chunk), encoder.matrix(chunk), equal_nan=True)
        calls.append(len(quick.known["c"]) - before)
    assert calls[0] == 5
    assert calls[1] == 3  # x, y and z
    assert calls[3] == 0
    monkeypatch.setattr(quick_encoding, "MAX_KNOWN", 5)
    chunk = table(100, "abc")
    assert np.array_equal(quick.matrix(chunk), encoder.matrix(chunk), equal_nan=True)
    assert len(quick.known["c"]) == 5


def test_a_chunk_without_rows_has_none() -> None:
    quick = QuickEncoder(TablePreprocessor().fit(table(50)))
    assert quick.matrix(table(0)).shape == (0, quick.matrix(table(3)).shape[1])


def test_tables_of_numbers_and_of_texts_and_dates_go_the_usual_way() -> None:
    numbers = table(200)[["x", "k"]]
    encoder = TablePreprocessor().fit(numbers)
    assert np.array_equal(QuickEncoder(encoder).matrix(numbers), encoder.matrix(numbers), equal_nan=True)
    other = table(200).assign(day=pd.date_range("2024-01-01", periods=200))
    encoder = TablePreprocessor().fit(other)
    assert np.array_equal(QuickEncoder(encoder).matrix(other), encoder.matrix(other), equal_nan=True)


def test_an_infinity_is_an_error_that_names_the_column() -> None:
    quick = QuickEncoder(TablePreprocessor().fit(table(100)))
    with pytest.raises(ValueError, match="column 'x' holds an infinity"):
        quick.matrix(table(10).assign(x=np.inf))
