"""Boosted trees of LightGBM and scikit-learn as plain arrays, for files and for ONNX."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from tailwise.options import Between, Items

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Columns = Annotated[int, Between(1, 10_000_000)]
Sizes = Annotated[Ints, Items(1, 1_000_000)]

_HISTOGRAM = {
    "left": "left",
    "right": "right",
    "feature": "feature_idx",
    "threshold": "num_threshold",
    "missing_left": "missing_go_to_left",
    "value": "value",
}
"""Names of the columns of nodes here and in scikit-learn."""


@dataclass(frozen=True)
class BoostedTrees:
    """Nodes of trees on numbers, one tree after another. Rows with at most the threshold go to the left."""

    features: Columns
    start: float
    """What is added to the sum of all trees."""
    sizes: Sizes  # (T,) nodes of each tree
    left: Ints  # counted from the first node of the tree; -1 in a leaf
    right: Ints
    feature: Ints
    threshold: Floats
    missing_left: NDArray[np.bool_]
    value: Floats

    def __post_init__(self) -> None:
        """Check every index: scikit-learn would read beyond the arrays. A child comes after its parent."""
        sizes, feature, children = self.sizes, self.feature, (self.left, self.right)
        sound = all(fills(sizes, getattr(self, name)) for name in _HISTOGRAM) and bool((sizes >= 1).all())
        if sound:
            place = np.arange(self.left.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            ends = np.repeat(sizes, sizes)
            inside = [(child == -1) | ((child > place) & (child < ends)) for child in children]
            inside += [(feature >= 0) & (feature < self.features), (self.left < 0) == (self.right < 0)]
            sound = bool(np.all(inside))
        if not sound:
            raise ValueError("the trees of the base do not fit together")

    @classmethod
    def of(cls, model: Any) -> BoostedTrees:
        """Take a fitted model apart; one that these trees do not predict alike is an error."""
        if isinstance(model, BoostedTrees):
            return model
        if isinstance(model, HistGradientBoostingRegressor):
            trees = cls._of_histogram(model)
        else:
            trees = cls._of_lightgbm(getattr(model, "booster_", model))
        rows = np.random.default_rng(0).normal(size=(8, trees.features))
        rows[::3, ::2] = np.nan
        if not np.allclose(model.predict(rows), trees.predict(rows), rtol=1e-9):
            raise ValueError("it has an option that changes its predictions in a way unknown here")
        return trees

    @classmethod
    def _of_histogram(cls, model: Any) -> BoostedTrees:
        if model.is_categorical_ is not None:
            raise ValueError("it has categorical features")
        trees = [predictor.nodes for (predictor,) in model._predictors]
        nodes = np.concatenate(trees)
        leaf = nodes["is_leaf"].astype(bool)
        columns: dict[str, Any] = {name: nodes[theirs] for name, theirs in _HISTOGRAM.items()}
        for name, in_leaf in (("left", -1), ("right", -1), ("feature", 0)):
            columns[name] = np.where(leaf, in_leaf, columns[name].astype(np.int64))
        columns["threshold"] = np.where(leaf, 0.0, columns["threshold"])
        columns["missing_left"] = columns["missing_left"].astype(bool)
        start = float(model._baseline_prediction.item())
        return cls(model.n_features_in_, start, np.array([len(tree) for tree in trees]), **columns)

    @classmethod
    def _of_lightgbm(cls, booster: Any) -> BoostedTrees:
        rows = [list(_nodes(tree["tree_structure"])) for tree in booster.dump_model()["tree_info"]]
        kinds = (np.int64, np.int64, np.int64, np.float64, np.bool_, np.float64)
        columns = zip(*(row for tree in rows for row in tree), strict=True)
        arrays: Any = (np.array(column, kind) for column, kind in zip(columns, kinds, strict=True))
        return cls(booster.num_feature(), 0.0, np.array(list(map(len, rows))), *arrays)

    @cached_property
    def _predictor(self) -> HistGradientBoostingRegressor:
        """A model of scikit-learn, fitted to two rows so that nothing is missing, then given these trees."""
        model = HistGradientBoostingRegressor(max_iter=1).fit(np.zeros((2, self.features)), [1.0, 2.0])
        ((first,),) = model._predictors
        nodes = np.zeros(self.left.size, first.nodes.dtype)
        for name, theirs in _HISTOGRAM.items():
            column = getattr(self, name)
            nodes[theirs] = np.maximum(column, 0) if name in ("left", "right") else column
        nodes["is_leaf"] = self.left == -1
        sets = first.binned_left_cat_bitsets, first.raw_left_cat_bitsets
        model._predictors = [[type(first)(tree, *sets)] for tree in parted(nodes, self.sizes)]
        model._baseline_prediction = np.full_like(model._baseline_prediction, self.start)
        return model

    def predict(self, matrix: Floats) -> Floats:
        """(N, F) -> (N,)"""
        return np.asarray(self._predictor.predict(matrix))


def _nodes(root: Any) -> Iterator[tuple[int, int, int, float, bool, float]]:
    """The nodes of a tree of LightGBM, breadth first, as columns of `BoostedTrees`."""
    nodes = [root]
    for node in nodes:  # which grows
        if "leaf_value" in node:
            yield -1, -1, 0, 0.0, False, float(node["leaf_value"])
            continue
        if node["decision_type"] != "<=" or node["missing_type"] == "Zero":
            raise ValueError("it has splits by category, or zeros that count as missing")
        threshold = float(node["threshold"])
        # Without missing values at fit, LightGBM takes NaN for 0.
        missing = node["default_left"] if node["missing_type"] == "NaN" else threshold >= 0
        yield len(nodes), len(nodes) + 1, int(node["split_feature"]), threshold, bool(missing), 0.0
        nodes += [node["left_child"], node["right_child"]]


def fills(sizes: Ints, values: NDArray[Any]) -> bool:
    """Whether parts of these sizes make up the values. No size exceeds their number, so no sum overflows."""
    sound = sizes.ndim == values.ndim == 1 and bool(((sizes >= 0) & (sizes <= values.size)).all())
    return sound and int(sizes.sum()) == values.size


def parted(values: NDArray[Any], sizes: Ints) -> list[NDArray[Any]]:
    """Values in parts of these sizes."""
    return np.split(values, np.cumsum(sizes)[:-1])
