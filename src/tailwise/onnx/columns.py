"""Columns of a table as the inputs of an ONNX graph: numbers and categories, encoded inside the file."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailwise.tables.column_encoders import LARGEST, CategoryColumn, DateColumn, NumberColumn, TextColumn
from tailwise.tables.encode import TablePreprocessor
from tailwise.tables.inputs import as_pandas

INSIDE = "inside/"
"""Names of values in the graph begin with this, which no column does."""
OUTPUTS = ("prediction", "std", "quantiles", "lower", "upper")
"""Names of outputs. A column with one of them is the input with the ending ``_column``."""
KINDS = {
    "number": "number: float64; NaN is missing",
    "category": "category: string; the empty string is missing",
}
"""What an input is, for each kind of column."""


class Column(NamedTuple):
    """A column of a table and its encoder, None in a table of numbers."""

    name: str
    kind: str
    encoder: NumberColumn | CategoryColumn | None

    @property
    def input(self) -> str:
        """Name of the input of the graph."""
        return f"{self.name}_column" if self.name in OUTPUTS else self.name


def columns_inside(preprocessor: TablePreprocessor) -> list[Column]:
    """Return the columns in the order of the matrix; one that is neither number nor category is an error."""
    if not preprocessor.encoders:
        names = preprocessor.columns or [f"x{k}" for k in range(len(preprocessor.numeric.center))]
        return [Column(name, "number", None) for name in names]
    columns, refused = [], []
    for encoder in preprocessor.encoders:
        if isinstance(encoder, CategoryColumn):
            columns.append(Column(encoder.name, "category", encoder))
        elif isinstance(encoder, NumberColumn) and not encoder.duration:
            columns.append(Column(encoder.name, "number", encoder))
        elif isinstance(encoder, (NumberColumn, TextColumn, DateColumn)):
            refused.append(repr(encoder.name))
    if refused:
        raise ValueError(
            f"an ONNX file encodes numbers and categories only, and training had text, dates or durations in "
            f"{', '.join(refused)}: export without raw columns and encode rows with preprocessor_.matrix, or "
            "fit without these columns"
        )
    return columns


def takes_columns(proto: Any, preprocessor: TablePreprocessor) -> Any:
    """Return an ONNX model whose inputs are columns, each (N,), from one whose input is ``x`` (N, F).

    `KINDS` says what they are. A category that training did not have is no known value. The metadata
    ``inputs`` describes each input.
    """
    from onnx import compose, helper

    proto = compose.add_prefix(proto, INSIDE, rename_outputs=False)
    graph, inputs, made = _Nodes(), [], []
    for column in columns_inside(preprocessor):
        kind = np.dtype(np.str_ if column.kind == "category" else np.float64)
        tensor = helper.np_dtype_to_tensor_dtype(kind)
        inputs.append(helper.make_tensor_value_info(column.input, tensor, ["rows"], KINDS[column.kind]))
        encoded = _one_hot if column.kind == "category" else _number
        made.append(encoded(graph, column))
    graph.add("Concat", *made, axis=1)
    graph.nodes[-1].output[:] = [f"{INSIDE}x"]
    rest = list(proto.graph.node)
    del proto.graph.node[:], proto.graph.input[:]
    proto.graph.node.extend([*graph.nodes, *rest])
    proto.graph.initializer.extend(graph.constants)
    proto.graph.input.extend(inputs)
    if "ai.onnx.ml" not in {entry.domain for entry in proto.opset_import}:
        proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    entry = proto.metadata_props.add()
    entry.key, entry.value = "inputs", json.dumps({value.name: value.doc_string for value in inputs})
    return proto


def raw_inputs(preprocessor: TablePreprocessor, x: Any) -> dict[str, NDArray[Any]]:
    """Return the rows of a table as the inputs of a model made by `takes_columns`, each (N,)."""
    columns = columns_inside(preprocessor)
    if not preprocessor.encoders:
        matrix = preprocessor.matrix(x)
        return {column.input: matrix[:, k] for k, column in enumerate(columns)}
    table = as_pandas(x)
    return {column.input: _values(column, table[column.name]) for column in columns}


def _values(column: Column, cells: Any) -> NDArray[Any]:
    if isinstance(column.encoder, NumberColumn):
        return column.encoder.encode(cells)[:, 0].astype(np.float64)
    texts = ["" if missing else str(cell) for cell, missing in zip(cells, cells.isna(), strict=True)]
    return np.array(["" if text.isspace() else text for text in texts], dtype=object)


class _Nodes:
    """Nodes and constants of a graph, in order; each method returns the name of a value."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, values: Any, kind: type) -> str:
        from onnx import numpy_helper

        name = f"{INSIDE}constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, kind), name))
        return name

    def add(self, operator: str, *given: str, **options: Any) -> str:
        from onnx import helper

        result = f"{INSIDE}{operator}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(given), [result], **options))
        return result

    def cast(self, value: str, kind: type) -> str:
        from onnx import helper

        return self.add("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(kind)))


def _number(graph: _Nodes, column: Column) -> str:
    """A number as a matrix of one column. (N,) -> (N, 1)"""
    value = column.input
    if column.encoder is not None:
        value = graph.add("Clip", value, *(graph.constant(end, np.float64) for end in (-LARGEST, LARGEST)))
        value = graph.cast(graph.cast(value, np.float32), np.float64)
    return graph.add("Unsqueeze", value, graph.constant([1], np.int64))


def _one_hot(graph: _Nodes, column: Column) -> str:
    """A category as a matrix of zeros and at most one 1 a row. (N,) -> (N, categories)"""
    assert isinstance(column.encoder, CategoryColumn)
    place, known = column.encoder.places, column.encoder.values
    code = graph.add(
        "LabelEncoder",
        column.input,
        domain="ai.onnx.ml",
        keys_strings=list(place),
        values_int64s=list(place.values()),
        default_int64=-1,
    )
    codes = graph.add("Unsqueeze", code, graph.constant([1], np.int64))
    return graph.cast(graph.add("Equal", codes, graph.constant([range(len(known))], np.int64)), np.float64)
