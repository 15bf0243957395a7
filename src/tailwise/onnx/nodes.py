"""What an ONNX graph does before its networks: columns are encoded, and boosted trees predict (VIR:offset).

Each fitted model of the base becomes one TreeEnsembleRegressor. CatBoost writes its own, and
`tailwise.model.trees` reads those of LightGBM and scikit-learn's HistGradientBoostingRegressor.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from tailwise.labels.bins import LabelBins
from tailwise.model.base import CrossFitted
from tailwise.model.trees import BoostedTrees
from tailwise.tables.column_encoders import LARGEST, CategoryColumn, DateColumn, NumberColumn, TextColumn
from tailwise.tables.encode import TablePreprocessor

BASE = "base"
"""Name of the value that the trees hand to the networks, (N, T) float64."""
OUTPUTS = ("prediction", "std", "quantiles", "lower", "upper")
"""Names of outputs. A column with one of them is the input with the ending ``_column``."""
KINDS = {
    "number": "number: float64; NaN is missing",
    "category": "category: string; the empty string is missing",
}
"""What an input is, for each kind of column."""
_INSIDE = "inside/"  # names of values in the graph begin with this, which no column does
_ML, _ML_OPSET = "ai.onnx.ml", 3
_CAN = (
    "export_onnx can write CatBoost, LightGBM and scikit-learn's HistGradientBoostingRegressor: choose one "
    "of them, or base=None"
)


class Front:
    """Nodes and constants to put in front of a graph, in order; each method returns the name of a value."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, values: Any, kind: type = np.float64) -> str:
        from onnx import numpy_helper

        name = f"{self.prefix}constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, kind), name))
        return name

    def add(self, operator: str, *inputs: str, result: str = "", **options: Any) -> str:
        from onnx import helper

        result = result or f"{self.prefix}{operator}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [result], **options))
        return result

    def cast(self, value: str, kind: type) -> str:
        from onnx import helper

        return self.add("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(kind)))

    def put(self, proto: Any) -> None:
        """Put the nodes in front of those of a model. What they compute is no longer an input."""
        from onnx import helper

        computed = {name for node in self.nodes for name in node.output}
        inputs = [value for value in proto.graph.input if value.name not in computed]
        del proto.graph.input[:]
        proto.graph.input.extend(inputs)
        nodes = [*self.nodes, *proto.graph.node]
        del proto.graph.node[:]
        proto.graph.node.extend(nodes)
        proto.graph.initializer.extend(self.constants)
        if _ML not in {entry.domain for entry in proto.opset_import}:
            proto.opset_import.append(helper.make_opsetid(_ML, _ML_OPSET))


def tree_nodes(bases: Sequence[CrossFitted], bins: Sequence[LabelBins]) -> Front:
    """Return nodes that compute the input `BASE` (N, T) of a graph from its input ``x`` (N, F), both float64.

    The base is standardised by the bins of latent labels, as networks take it. NaN is missing, and so is an
    infinity.
    """
    front = Front("base/")
    x = front.add("Where", front.add("IsInf", "x"), front.constant(np.nan), "x")
    x32 = front.cast(x, np.float32)
    models = [model for base in bases for model in base.models]
    trees = [_add_trees(front, model, x, x32) for model in models]
    factors, shift, start = np.zeros((len(models), len(bases))), np.zeros(len(bases)), 0
    for t, (base, b) in enumerate(zip(bases, bins, strict=True)):
        factors[start : start + len(base.models), t] = base.scale / b.scale * base.shares
        shift[t], start = (base.location - b.location) / b.scale, start + len(base.models)
    predicted = front.cast(front.add("Concat", *trees, axis=1), np.float64)
    scaled = front.add("MatMul", predicted, front.constant(factors))
    front.add("Add", scaled, front.constant(shift), result=BASE)
    return front


def _add_trees(front: Front, model: Any, x: str, x32: str) -> str:
    """Add one model as a TreeEnsembleRegressor of x (float64) or of x32 (float32)."""
    library = type(model).__module__.partition(".")[0]
    try:
        if library == "catboost":
            node, values = _catboost_node(model), x32  # CatBoost itself compares in float32
        elif library == "lightgbm" or isinstance(model, BoostedTrees | HistGradientBoostingRegressor):
            node, values = _tree_node(BoostedTrees.of(model)), x
        else:
            raise ValueError("it is no model of boosted trees")
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{type(model).__name__} cannot be exported as ONNX ({reason}). {_CAN}") from error
    result = f"{front.prefix}trees{len(front.nodes)}"
    node.input[:], node.output[:] = [values], [result]
    front.nodes.append(node)
    return result


def _catboost_node(model: Any) -> Any:
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        model.save_model(str(path), format="onnx")
        (node,) = onnx.load(path).graph.node
    return node


def _tree_node(trees: BoostedTrees) -> Any:
    from onnx import helper, numpy_helper

    number = np.concatenate([np.arange(size) for size in trees.sizes])
    tree, leaf = np.repeat(np.arange(trees.sizes.size), trees.sizes), trees.left < 0
    return helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain=_ML,
        n_targets=1,
        nodes_treeids=tree.tolist(),
        nodes_nodeids=number.tolist(),
        nodes_featureids=trees.feature.tolist(),
        nodes_modes=np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
        nodes_truenodeids=np.where(leaf, 0, trees.left).tolist(),
        nodes_falsenodeids=np.where(leaf, 0, trees.right).tolist(),
        nodes_missing_value_tracks_true=trees.missing_left.astype(int).tolist(),
        nodes_values_as_tensor=numpy_helper.from_array(trees.threshold),
        target_treeids=tree[leaf].tolist(),
        target_nodeids=number[leaf].tolist(),
        target_ids=[0] * int(leaf.sum()),
        target_weights_as_tensor=numpy_helper.from_array(trees.value[leaf]),
        base_values_as_tensor=numpy_helper.from_array(np.array([trees.start])),
    )


class Column(NamedTuple):
    """A column of a table and its encoder, None in a table of numbers."""

    name: str
    encoder: NumberColumn | CategoryColumn | None

    @property
    def input(self) -> str:
        """Name of the input of the graph."""
        return f"{self.name}_column" if self.name in OUTPUTS else self.name

    def values(self, cells: Any) -> NDArray[Any]:
        """Return cells of the column as values of the input. (N,)"""
        if isinstance(self.encoder, NumberColumn):
            return self.encoder.encode(cells)[:, 0].astype(np.float64)
        texts = ["" if missing else str(cell) for cell, missing in zip(cells, cells.isna(), strict=True)]
        return np.array(["" if text.isspace() else text for text in texts], dtype=object)


def columns_inside(preprocessor: TablePreprocessor) -> list[Column]:
    """Return the columns in the order of the matrix; one that is neither number nor category is an error."""
    if not preprocessor.encoders:
        names = preprocessor.columns or [f"x{k}" for k in range(len(preprocessor.numeric.center))]
        return [Column(name, None) for name in names]
    columns, refused = [], []
    for encoder in preprocessor.encoders:
        if isinstance(encoder, CategoryColumn) or (
            isinstance(encoder, NumberColumn) and not encoder.duration
        ):
            columns.append(Column(encoder.name, encoder))
        elif isinstance(encoder, NumberColumn | TextColumn | DateColumn):  # not a column without values
            refused.append(repr(encoder.name))
    if refused:
        raise ValueError(
            f"an ONNX file encodes numbers and categories only, and training had text, dates or durations in "
            f"{', '.join(refused)}: export without raw columns and encode rows with preprocessor_.matrix, or "
            "fit without these columns"
        )
    return columns


def takes_columns(proto: Any, columns: Sequence[Column]) -> Any:
    """Return an ONNX model whose inputs are columns, each (N,), from one whose input is ``x`` (N, F).

    `KINDS` says what they are. A category that training did not have is no known value. The metadata
    ``inputs`` describes each input.
    """
    from onnx import compose, helper

    proto = compose.add_prefix(proto, _INSIDE, rename_outputs=False)
    front, inputs, encoded = Front(_INSIDE), {}, []
    for column in columns:
        category = isinstance(column.encoder, CategoryColumn)
        inputs[column.input] = KINDS["category" if category else "number"]
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(np.str_ if category else np.float64))
        value = helper.make_tensor_value_info(column.input, kind, ["rows"], inputs[column.input])
        proto.graph.input.append(value)
        encoded.append(_one_hot(front, column) if category else _number(front, column))
    front.add("Concat", *encoded, result=f"{_INSIDE}x", axis=1)
    front.put(proto)
    entry = proto.metadata_props.add()
    entry.key, entry.value = "inputs", json.dumps(inputs)
    return proto


def _number(front: Front, column: Column) -> str:
    """A number as a matrix of one column. (N,) -> (N, 1)"""
    value = column.input
    if column.encoder is not None:
        value = front.add("Clip", value, front.constant(-LARGEST), front.constant(LARGEST))
        value = front.cast(front.cast(value, np.float32), np.float64)
    return front.add("Unsqueeze", value, front.constant([1], np.int64))


def _one_hot(front: Front, column: Column) -> str:
    """A category as a matrix of zeros and at most one 1 a row. (N,) -> (N, categories)"""
    assert isinstance(column.encoder, CategoryColumn)
    place = column.encoder.places
    code = front.add(
        "LabelEncoder",
        column.input,
        domain=_ML,
        keys_strings=list(place),
        values_int64s=list(place.values()),
        default_int64=-1,
    )
    codes = front.add("Unsqueeze", code, front.constant([1], np.int64))
    numbers = front.constant([range(len(column.encoder.outputs))], np.int64)
    return front.cast(front.add("Equal", codes, numbers), np.float64)
