"""Encoders of columns come back to the last bit, and only with what their columns can have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailwise.files.column_files import Categories, Dates, Texts, column_encoder, column_state
from tailwise.tables.column_encoders import ColumnEncoder
from tailwise.tables.encode import TablePreprocessor
from tests.estimator.saved_files import mixed


@pytest.fixture(scope="module")
def fitted() -> tuple[TablePreprocessor, pd.DataFrame]:
    x, _ = mixed()
    days = x["day"].dt.strftime("%d/%m/%Y").where(x["number"] > -1)
    x = x.assign(wait=x["day"] - x["day"].min(), price=x["number"].astype(str), date=days, nothing=np.nan)
    return TablePreprocessor().fit(x), x


def test_encoders_come_back_to_the_last_bit(fitted: tuple[TablePreprocessor, pd.DataFrame]) -> None:
    preprocessor, x = fitted
    new = x.assign(word="blue", text="other words", kind="?", date="no date", price=3)
    states = [column_state(encoder) for encoder in preprocessor.encoders]
    for encoder, state in zip(preprocessor.encoders, states, strict=True):
        again = column_encoder(state, "pandas")
        assert (again.name, again.kind, again.outputs) == (encoder.name, encoder.kind, encoder.outputs)
        for table in (x, new) if encoder.outputs else ():
            made = [np.asarray(e.encode(table[e.name]), np.float64) for e in (encoder, again)]
            np.testing.assert_array_equal(*made)
    assert {type(state.last) for state in states} == {Dates, Categories, Texts, type(None)}


def test_a_step_that_no_file_can_hold_is_named() -> None:
    class Another:
        pass

    encoder = ColumnEncoder("words", "high_cardinality", (Another(),), ("words_0",))
    with pytest.raises(ValueError, match=r"'words' is encoded by Another of skrub [\d.]+, which a file"):
        column_state(encoder)


def test_what_a_column_cannot_have(fitted: tuple[TablePreprocessor, pd.DataFrame]) -> None:
    states: dict[str, Any] = {e.name: column_state(e) for e in fitted[0].encoders}
    text, hour, kind = states["text"], states["hour"], states["kind"]
    for state, changes, message in (
        (text.last, {"lines": np.frombuffer(b"abc\nabcde", np.uint8)}, "must be short"),
        (text.last, {"lines": np.frombuffer(b"abc\nabc", np.uint8)}, "and different from one another"),
        (text.last, {"weights": text.last.weights[1:]}, "need as many weights"),
        (text.last, {"components": text.last.components[:, 1:]}, "components must have the shape"),
        (text.last, {"components": None, "parts": 10**6}, "need as many runs"),
        (hour.last, {"zone": "dateutil//etc/passwd"}, "is no time zone"),
        (hour.last, {"parts": ("day", "year")}, "parts of dates must be in order"),
        (kind.last, {"values": ("b", "a")}, "categories must be texts in order"),
        (kind.last, {"values": ("a", 5.0)}, "must be a missing value"),
        (kind, {"last": None}, "a low_cardinality column cannot end with NoneType"),
        (kind, {"outputs": ("one",)}, "has 1 outputs and becomes 3 numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(state, **changes)
