"""Boosted trees as ONNX: the base of a `TailRegressor` (VIR:offset) in front of its networks.

Each fitted model becomes one TreeEnsembleRegressor. CatBoost writes its own. Those of LightGBM and
scikit-learn's HistGradientBoostingRegressor are read off their trees, with thresholds in float64.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from tailwise.labels.bins import LabelBins
from tailwise.model.base import MIN_ROWS, CrossFitted, resolve_base

Floats = NDArray[np.float64]

BASE = "base"
"""Name of the value that the trees hand to the networks."""
_TREES = "ai.onnx.ml"
_TREES_OPSET = 3
_TOLERANCE = 1e-5
_CAN = (
    "export_onnx can write CatBoost, LightGBM and scikit-learn's HistGradientBoostingRegressor: choose one "
    "of them, or base=None"
)


def check_exportable(base: Any) -> None:
    """Raise an error if a model with this base cannot be exported as ONNX, before anything is trained.

    `base` is what `TailRegressor` takes (a name, ``"auto"``, a regressor or None), or a fitted regressor.
    """
    if isinstance(base, str) or base is None:
        resolve_base(base, MIN_ROWS)  # an unknown name or a missing package is an error
    elif not _is_exportable(base):
        raise ValueError(f"a base of type {type(base).__name__} cannot be exported as ONNX. {_CAN}")


def _is_exportable(model: Any) -> bool:
    return _library(model) in ("catboost", "lightgbm") or isinstance(model, HistGradientBoostingRegressor)


def _library(model: Any) -> str:
    return type(model).__module__.partition(".")[0]


def base_model(
    bases: Sequence[CrossFitted], bins: Sequence[LabelBins], columns: int, opset: int, rows: Floats
) -> Any:
    """Return an ONNX model of the bases: ``x`` (N, F) float64 -> ``base`` (N, T) float64.

    The result is standardised by the bins of latent labels, as networks take it. NaN is missing, and so is an
    infinity. The model must predict the given rows (n, F) as the bases do, or there is an error.
    """
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("IsInf", ["x"], ["base/infinite"]),
        helper.make_node("Where", ["base/infinite", "base/nan", "x"], ["base/x"]),
        helper.make_node("Cast", ["base/x"], ["base/x32"], to=TensorProto.FLOAT),
    ]
    models = [model for base in bases for model in base.models]
    for k, model in enumerate(models):
        node = _node(model)
        node.input[:], node.output[:] = [f"base/{node.input[0]}"], [f"base/trees{k}"]
        nodes.append(node)
    factors = np.zeros((len(models), len(bases)))
    shift, start = np.zeros(len(bases)), 0
    for t, (base, b) in enumerate(zip(bases, bins, strict=True)):
        factors[start : start + len(base.models), t] = base.scale / b.scale / len(base.models)
        shift[t], start = (base.location - b.location) / b.scale, start + len(base.models)
    nodes += [
        helper.make_node("Concat", [f"base/trees{k}" for k in range(len(models))], ["base/each"], axis=1),
        helper.make_node("Cast", ["base/each"], ["base/each64"], to=TensorProto.DOUBLE),
        helper.make_node("MatMul", ["base/each64", "base/factors"], ["base/scaled"]),
        helper.make_node("Add", ["base/scaled", "base/shift"], [BASE]),
    ]
    constants = {"nan": np.array(np.nan), "factors": factors, "shift": shift}
    graph = helper.make_graph(
        nodes,
        "base",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, ["rows", columns])],
        [helper.make_tensor_value_info(BASE, TensorProto.DOUBLE, ["rows", len(bases)])],
        [numpy_helper.from_array(value, f"base/{name}") for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(_TREES, _TREES_OPSET)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    _check_trees(proto, bases, bins, rows)
    return proto


def _check_trees(proto: Any, bases: Sequence[CrossFitted], bins: Sequence[LabelBins], rows: Floats) -> None:
    """Raise an error if a base predicts otherwise in ONNX, as with an option that no tree shows."""
    import onnxruntime

    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (predictions,) = session.run(None, {"x": rows})
    for base, b, column in zip(bases, bins, predictions.T, strict=True):
        off = np.abs(column - (base.latent(rows) - b.location) / b.scale).max()
        if not off < _TOLERANCE:
            raise ValueError(
                f"{type(base.models[0]).__name__} has an option that ONNX trees cannot express (predictions "
                f"differ by {off:.2g} standard deviations of the labels): use a loss without a link, and no "
                "categorical features"
            )


def put_in_front(first: Any, then: Any) -> None:
    """Add the nodes of `base_model` to a model that takes its result as an input."""
    nodes = [*first.graph.node, *then.graph.node]
    del then.graph.node[:]
    then.graph.node.extend(nodes)
    then.graph.initializer.extend(first.graph.initializer)
    inputs = [value for value in then.graph.input if value.name != BASE]
    del then.graph.input[:]
    then.graph.input.extend(inputs)
    then.opset_import.extend(o for o in first.opset_import if o.domain == _TREES)


def _node(model: Any) -> Any:
    """One model as a TreeEnsembleRegressor whose input is "x" (float64) or "x32" (float32)."""
    try:
        if _library(model) == "catboost":
            return _catboost_node(model)
        if _library(model) == "lightgbm":
            return _ensemble(_lightgbm_nodes(model))
        return _ensemble(_sklearn_nodes(model), float(model._baseline_prediction.item()))
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{type(model).__name__} cannot be exported as ONNX ({reason}). {_CAN}") from error


def _catboost_node(model: Any) -> Any:
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        model.save_model(str(path), format="onnx")
        (node,) = onnx.load(path).graph.node
    node.input[0] = "x32"  # CatBoost itself compares in float32
    return node


class _Node(NamedTuple):
    """A leaf with a value, or a split: `yes` if the feature is at most the threshold."""

    tree: int
    number: int
    feature: int = 0
    threshold: float = 0.0
    yes: int = 0
    no: int = 0
    missing_is_yes: bool = False
    value: float | None = None


def _sklearn_nodes(model: HistGradientBoostingRegressor) -> Iterator[_Node]:
    for tree, (predictor,) in enumerate(model._predictors):
        for number, node in enumerate(predictor.nodes):
            if node["is_leaf"]:
                yield _Node(tree, number, value=float(node["value"]))
            else:
                yes, no, missing = int(node["left"]), int(node["right"]), bool(node["missing_go_to_left"])
                threshold = float(node["num_threshold"])
                yield _Node(tree, number, int(node["feature_idx"]), threshold, yes, no, missing)


def _lightgbm_nodes(model: Any) -> Iterator[_Node]:
    trees = getattr(model, "booster_", model).dump_model()["tree_info"]
    for tree, info in enumerate(trees):
        waiting, count = [(0, info["tree_structure"])], 1
        while waiting:
            number, node = waiting.pop()
            if "leaf_value" in node:
                yield _Node(tree, number, value=float(node["leaf_value"]))
                continue
            threshold = float(node["threshold"])  # not a number for categories
            # Without missing values at fit, LightGBM takes NaN for 0.
            missing = node["default_left"] if node["missing_type"] == "NaN" else threshold >= 0
            yield _Node(tree, number, int(node["split_feature"]), threshold, count, count + 1, bool(missing))
            waiting += [(count, node["left_child"]), (count + 1, node["right_child"])]
            count += 2


def _ensemble(nodes: Iterator[_Node], start: float = 0.0) -> Any:
    from onnx import helper, numpy_helper

    every = list(nodes)
    leaves = [node for node in every if node.value is not None]
    return helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain=_TREES,
        n_targets=1,
        nodes_treeids=[node.tree for node in every],
        nodes_nodeids=[node.number for node in every],
        nodes_featureids=[node.feature for node in every],
        nodes_modes=["BRANCH_LEQ" if node.value is None else "LEAF" for node in every],
        nodes_truenodeids=[node.yes for node in every],
        nodes_falsenodeids=[node.no for node in every],
        nodes_missing_value_tracks_true=[int(node.missing_is_yes) for node in every],
        nodes_values_as_tensor=numpy_helper.from_array(np.array([node.threshold for node in every])),
        target_treeids=[node.tree for node in leaves],
        target_nodeids=[node.number for node in leaves],
        target_ids=[0] * len(leaves),
        target_weights_as_tensor=numpy_helper.from_array(np.array([node.value for node in leaves])),
        base_values_as_tensor=numpy_helper.from_array(np.array([start])),
    )
