"""A trial of the encoders in an ONNX graph on made-up rows, against Python, before a file is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tailwise.data.tables.preprocessing import TablePreprocessor
from tailwise.onnx.columns import Column, columns_inside, raw_inputs, takes_columns

if TYPE_CHECKING:
    import pandas as pd

TOLERANCE = 1e-3
"""How far an encoded number may be off in units of its spread in the training table."""
ROWS = 24
UNUSUAL = ["", " \t", "NA", "İΣ ΣΑΣ.", "ǅ\u00a0ß\u2003ﬁ", "\U0001f600e\u0301", "A", "no such words"]
"""Texts on which implementations of lower case and of white space differ."""


def columns_model(preprocessor: TablePreprocessor, opset: int) -> Any:
    """Return an ONNX model that takes columns and returns the matrix of a preprocessor."""
    from onnx import TensorProto, helper

    shape: list[str | int | None] = ["rows", len(preprocessor.numeric.center)]
    x, out = (helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape) for name in ("x", "matrix"))
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["matrix"])], "columns", [x], [out])
    bare = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return takes_columns(bare, preprocessor)


def try_columns(preprocessor: TablePreprocessor, opset: int) -> None:
    """Raise an error if onnxruntime encodes made-up rows otherwise than Python does."""
    import onnxruntime

    if preprocessor.vectorizer is None:
        return  # numbers go in as they are
    model = columns_model(preprocessor, opset).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    rows = made_up_rows(preprocessor)
    wanted = preprocessor.encoded(preprocessor.plain(rows))
    (found,) = session.run(None, raw_inputs(preprocessor, rows))
    off = np.abs(found - wanted) / preprocessor.numeric.scale.numpy()
    wrong = ~((off < TOLERANCE) | (np.isnan(found) & np.isnan(wanted)))
    for name, places in preprocessor.places.items():
        if wrong[:, places].any():
            row = int(wrong[:, places].any(1).argmax())
            raise RuntimeError(
                f"onnxruntime {onnxruntime.__version__} does not encode column {name!r} as Python does, as "
                f"in {rows[name].iloc[row]!r}: upgrade onnxruntime, or export without raw columns"
            )


def made_up_rows(preprocessor: TablePreprocessor) -> pd.DataFrame:
    """Return rows such as the training table may have had: known and new values, and missing ones."""
    import pandas as pd

    places = preprocessor.places
    columns = {column.name: column for column in columns_inside(preprocessor)}
    center, scale = preprocessor.numeric.center.numpy(), preprocessor.numeric.scale.numpy()
    made: dict[str, Any] = {}
    for name, own in places.items():
        if name not in columns:
            made[name] = [None] * ROWS  # a column without values
            continue
        spread = center[own[-1]] + scale[own[-1]] * np.linspace(-4, 4, ROWS)
        made[name] = _cells(columns[name], spread)
    return pd.DataFrame(made)


def _cells(column: Column, spread: Any) -> Any:
    """Cells of a column; `spread` are numbers around the last of those that it becomes."""
    import pandas as pd

    if column.kind in ("date", "duration"):  # the last number is in seconds
        kind = "datetime64[s]" if column.kind == "date" else "timedelta64[s]"
        times = pd.Series(spread.astype(np.int64).astype(kind))
        times[::5] = pd.NaT
        return times if column.kind == "duration" or column.zone is None else times.dt.tz_localize("UTC")
    if column.kind == "number":
        spread[::5] = np.nan
        return spread
    known = sorted(_known(column))
    words = [known[k % len(known)] for k in np.linspace(0, 7 * len(known), ROWS).astype(int)]
    if column.kind == "text":
        words = [f"{word} {other.upper()}{word}" for word, other in zip(words, words[::-1], strict=True)]
    return pd.Series([*words[len(UNUSUAL) :], *UNUSUAL], dtype=object)


def _known(column: Column) -> list[str]:
    if column.kind == "text":
        return list(column.steps["StringEncoder"].vectorizer_.vocabulary_)
    return [value for value in column.steps["OneHotEncoder"].categories_[0] if isinstance(value, str)]
