"""Columns of a table as the inputs of an ONNX graph: numbers and categories are encoded inside the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tailwise.data.tables.preprocessing import TablePreprocessor

INSIDE = "inside/"
"""Names of values in the graph begin with this, so that no column has the name of one."""
ML_OPSET = 3


def takes_columns(proto: Any, preprocessor: TablePreprocessor) -> Any:
    """Return an ONNX model whose inputs are columns, each (N,), from one whose input is ``x`` (N, F).

    Numbers are float64, NaN where missing. Categories are strings; the empty string is missing, and one that
    training did not have is no known value. A column with the name of an output gets the ending ``_column``.
    A column of free text, dates or durations is an error.
    """
    from onnx import TensorProto, compose, helper, numpy_helper

    outputs = {value.name for value in proto.graph.output}
    proto = compose.add_prefix(proto, INSIDE, rename_outputs=False)
    nodes, inputs, made = [], [], []

    def constant(name: str, values: Any) -> str:
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(values, np.int64), INSIDE + name))
        return INSIDE + name

    def node(kind: str, given: Sequence[str], result: str, **options: Any) -> str:
        nodes.append(helper.make_node(kind, list(given), [INSIDE + result], **options))
        return INSIDE + result

    axis = constant("axis", [1])
    for k, (column, categories) in enumerate(columns_inside(preprocessor)):
        name = f"{column}_column" if column in outputs else column
        kind = TensorProto.DOUBLE if categories is None else TensorProto.STRING
        inputs.append(helper.make_tensor_value_info(name, kind, ["rows"]))
        if categories is None:
            value = name
            if preprocessor.vectorizer is not None:  # skrub rounds to float32
                value = node("Cast", [value], f"single{k}", to=TensorProto.FLOAT)
                value = node("Cast", [value], f"double{k}", to=TensorProto.DOUBLE)
            made.append(node("Unsqueeze", [value, axis], f"number{k}"))
            continue
        place = {text: p for p, text in enumerate(categories) if text is not None}
        if None in categories:
            place[""] = categories.index(None)
        code = node(
            "LabelEncoder",
            [name],
            f"code{k}",
            domain="ai.onnx.ml",
            keys_strings=list(place),
            values_int64s=list(place.values()),
            default_int64=-1,
        )
        codes = node("Unsqueeze", [code, axis], f"codes{k}")
        same = node("Equal", [codes, constant(f"places{k}", [list(range(len(categories)))])], f"same{k}")
        made.append(node("Cast", [same], f"one_hot{k}", to=TensorProto.DOUBLE))
    node("Concat", made, "x", axis=1)
    rest = list(proto.graph.node)
    del proto.graph.node[:], proto.graph.input[:]
    proto.graph.node.extend([*nodes, *rest])
    proto.graph.input.extend(inputs)
    if all(entry.domain != "ai.onnx.ml" for entry in proto.opset_import):
        proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", ML_OPSET))
    return proto


def columns_inside(preprocessor: TablePreprocessor) -> list[tuple[str, list[str | None] | None]]:
    """Return the columns in the order of the matrix, each with its categories; None is a missing value.

    Columns that an ONNX file cannot encode are an error that names all of them.
    """
    vectorizer = preprocessor.vectorizer
    if vectorizer is None:
        count = len(preprocessor.numeric.center)
        return [(name, None) for name in preprocessor.columns or [f"x{k}" for k in range(count)]]
    places = preprocessor.made_of("numeric", "datetime", "low_cardinality", "high_cardinality")
    found: list[tuple[str, list[str | None] | None]] = []
    refused = []
    for name in sorted(places, key=lambda column: places[column][0]):
        steps = {type(step).__name__: step for step in vectorizer.all_processing_steps_[name]}
        if "OneHotEncoder" in steps:
            known = steps["OneHotEncoder"].categories_[0]
            found.append((name, [value if isinstance(value, str) else None for value in known]))
        elif vectorizer.column_to_kind_[name] == "numeric" and "DurationToFloat" not in steps:
            found.append((name, None))
        else:
            refused.append(repr(name))
    if refused:
        columns, it = ("columns", "them") if len(refused) > 1 else ("column", "it")
        raise ValueError(
            "an ONNX file cannot encode free text, dates or durations, as in "
            f"{columns} {', '.join(refused)}: export without raw columns, or fit without {it}"
        )
    return found
