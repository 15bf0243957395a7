"""Columns of a table as the inputs of an ONNX graph: each is encoded inside the file as skrub does it."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailwise.data.tables.preprocessing import LARGEST, TablePreprocessor, absent_cells
from tailwise.onnx.dates import PARTS, date_parts
from tailwise.onnx.nodes import INSIDE, Nodes
from tailwise.onnx.text import can_encode, is_blank, text_parts

KINDS = {
    "number": ("float64", "NaN"),
    "duration": ("float64, in seconds", "NaN"),
    "category": ("string", "the empty string"),
    "text": ("string", "the empty string"),
    "date": ("int64, microseconds since 1970-01-01", "-2**63"),
}
"""What an input is, for each kind of column, and what is missing there."""


OUTPUTS = ("prediction", "std", "quantiles", "lower", "upper")
"""Names of outputs. A column with one of them is the input with the ending ``_column``."""


class Column(NamedTuple):
    """A column of a table and how skrub encodes it."""

    name: str
    kind: str
    steps: dict[str, Any]

    @property
    def input(self) -> str:
        """Name of the input of the graph."""
        return f"{self.name}_column" if self.name in OUTPUTS else self.name

    @property
    def zone(self) -> str | None:
        """The time zone of dates, None where they have none."""
        name: str | None = self.steps["ToDatetime"].output_time_zone_
        return name

    @property
    def nulls(self) -> list[str]:
        """Texts that mean a missing value."""
        return self.steps["CleanNullStrings"].null_strings_ if "CleanNullStrings" in self.steps else []

    @property
    def described(self) -> str:
        """What the input of the column is, in words."""
        held, missing = KINDS[self.kind]
        if self.kind == "date":
            held += " in UTC" if self.zone else " of the same clock, without a time zone"
        return f"{self.kind}: {held}; {missing} is missing"


def takes_columns(proto: Any, preprocessor: TablePreprocessor) -> Any:
    """Return an ONNX model whose inputs are columns, each (N,), from one whose input is ``x`` (N, F).

    `KINDS` says what they are. A category that training did not have is no known value. The metadata
    ``inputs`` describes each input.
    """
    from onnx import compose, helper

    proto = compose.add_prefix(proto, INSIDE, rename_outputs=False)
    nodes, inputs, made = Nodes(), [], []
    for column in columns_inside(preprocessor):
        kind = {"category": np.str_, "text": np.str_, "date": np.int64}.get(column.kind, np.float64)
        tensor = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        inputs.append(helper.make_tensor_value_info(column.input, tensor, ["rows"], column.described))
        made.append(_encoded(nodes, column, preprocessor.vectorizer))
    nodes.add("Concat", *made, axis=1)
    nodes.nodes[-1].output[:] = [f"{INSIDE}x"]
    nodes.put_in_front(proto, inputs)
    entry = proto.metadata_props.add()
    entry.key, entry.value = "inputs", json.dumps({value.name: value.doc_string for value in inputs})
    return proto


def _encoded(nodes: Nodes, column: Column, vectorizer: Any) -> str:
    """The numbers that a column becomes, float64 (N, P)."""
    value = column.input
    if column.kind == "text":
        return text_parts(nodes, value, column.steps["StringEncoder"], column.nulls)
    if column.kind == "date":
        library = getattr(vectorizer, "library_", "pandas")
        return date_parts(nodes, value, _parts(column), column.zone, library)
    if column.kind == "category":
        return _one_hot(nodes, value, column)
    if vectorizer is not None:  # skrub rounds to float32
        limits = (nodes.constant(limit, np.float64) for limit in (-LARGEST, LARGEST))
        value = nodes.add("Clip", value, *limits)
        value = nodes.cast(nodes.cast(value, np.float32), np.float64)
    return nodes.column_of(value)


def _one_hot(nodes: Nodes, name: str, column: Column) -> str:
    known = [
        value if isinstance(value, str) else None for value in column.steps["OneHotEncoder"].categories_[0]
    ]
    place = {text: p for p, text in enumerate(known) if text is not None}
    code = nodes.look_up(name, place, -1)
    if None in known:
        missing = known.index(None)
        code = nodes.look_up(name, place | dict.fromkeys(["", *column.nulls], missing), -1)
        if column.nulls:
            code = nodes.add("Where", is_blank(nodes, name), nodes.constant(missing), code)
    places = nodes.constant([list(range(len(known)))])
    return nodes.cast(nodes.add("Equal", nodes.column_of(code), places), np.float64)


def columns_inside(preprocessor: TablePreprocessor) -> list[Column]:
    """Return the columns in the order of the matrix. Those that no graph can encode are an error."""
    vectorizer = preprocessor.vectorizer
    if vectorizer is None:
        count = len(preprocessor.numeric.center)
        names = preprocessor.columns or [f"x{k}" for k in range(count)]
        return [Column(name, "number", {}) for name in names]
    places = preprocessor.made_of("numeric", "datetime", "low_cardinality", "high_cardinality")
    found, refused = [], []
    for name in sorted(places, key=lambda column: places[column][0]):
        steps = {type(step).__name__: step for step in vectorizer.all_processing_steps_[name]}
        column = Column(name, _kind(steps), steps)
        if not _can_encode(column):
            refused.append(repr(name))
        found.append(column)
    if refused:
        columns, it = ("columns", "them") if len(refused) > 1 else ("column", "it")
        raise ValueError(
            f"an ONNX file cannot encode {columns} {', '.join(refused)}, which skrub encodes in another way "
            f"than TailRegressor asks for: export without raw columns, or fit without {it}"
        )
    return found


def _kind(steps: dict[str, Any]) -> str:
    kinds = {
        "OneHotEncoder": "category",
        "StringEncoder": "text",
        "DatetimeEncoder": "date",
        "DurationToFloat": "duration",
    }
    return next((kind for step, kind in kinds.items() if step in steps), "number")


def _can_encode(column: Column) -> bool:
    if column.kind == "text":
        return can_encode(column.steps["StringEncoder"])
    return column.kind != "date" or (
        set(_parts(column)) <= set(PARTS)
        and getattr(column.steps["DatetimeEncoder"], "periodic_encoding", None) is None
    )


def _parts(column: Column) -> list[str]:
    parts: list[str] = column.steps["DatetimeEncoder"].extracted_features_
    return parts


def raw_inputs(preprocessor: TablePreprocessor, x: Any) -> dict[str, NDArray[Any]]:
    """Return the rows of a table as the inputs of a model made by `takes_columns`, each (N,)."""
    columns = columns_inside(preprocessor)
    if preprocessor.vectorizer is None:
        matrix = preprocessor.matrix(x)
        return {column.input: matrix[:, k] for k, column in enumerate(columns)}
    table = preprocessor.plain(x)
    return {column.input: _values(column, table[column.name]) for column in columns}


def _values(column: Column, cells: Any) -> NDArray[Any]:
    if column.kind == "date":
        dates = np.asarray(column.steps["ToDatetime"].transform(cells), "datetime64[us]")
        return dates.astype(np.int64)
    if column.kind == "duration":
        return np.asarray(np.asarray(cells) / np.timedelta64(1, "s"))
    if column.kind == "number":
        return np.asarray(column.steps["ToFloat"].transform(cells), np.float64)
    pairs = zip(cells.to_list(), absent_cells(cells), strict=True)
    return np.array(["" if missing else str(cell) for cell, missing in pairs], dtype=object)
