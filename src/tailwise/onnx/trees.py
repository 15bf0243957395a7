"""Boosted trees as ONNX: the base of a `TailRegressor` (VIR:offset) in front of its networks.

Each fitted model becomes one TreeEnsembleRegressor. CatBoost writes its own. `tailwise.model.trees` has those
of LightGBM and scikit-learn's HistGradientBoostingRegressor, with thresholds in float64.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from tailwise.labels.bins import LabelBins
from tailwise.model.base import CrossFitted
from tailwise.model.trees import BoostedTrees

BASE = "base"
"""Name of the value that the trees hand to the networks."""
_TREES = "ai.onnx.ml"
_TREES_OPSET = 3
_CAN = (
    "export_onnx can write CatBoost, LightGBM and scikit-learn's HistGradientBoostingRegressor: choose one "
    "of them, or base=None"
)


def check_exportable(base: Any) -> None:
    """Raise an error if a model with this fitted base cannot be exported as ONNX."""
    if not _is_exportable(base):
        raise ValueError(f"a base of type {type(base).__name__} cannot be exported as ONNX. {_CAN}")


def _is_exportable(model: Any) -> bool:
    kinds = (BoostedTrees, HistGradientBoostingRegressor)
    return _library(model) in ("catboost", "lightgbm") or isinstance(model, kinds)


def _library(model: Any) -> str:
    return type(model).__module__.partition(".")[0]


def base_model(bases: Sequence[CrossFitted], bins: Sequence[LabelBins], columns: int, opset: int) -> Any:
    """Return an ONNX model of the bases: ``x`` (N, F) float64 -> ``base`` (N, T) float64.

    The result is standardised by the bins of latent labels, as networks take it. NaN is missing, and so is an
    infinity.
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
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


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
        return _catboost_node(model) if _library(model) == "catboost" else _ensemble(BoostedTrees.of(model))
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


def _ensemble(trees: BoostedTrees) -> Any:
    from onnx import helper, numpy_helper

    number = np.concatenate([np.arange(size) for size in trees.sizes])
    tree, leaf = np.repeat(np.arange(trees.sizes.size), trees.sizes), trees.left < 0
    return helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain=_TREES,
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
