"""Fitted base regressors as plain values and arrays, and back. Nothing in a file can name code to run.

CatBoost, LightGBM and scikit-learn do not check their models themselves: they would read beyond the end of
arrays. So every index is compared with what it points to. Bases that take pages to check cannot be saved.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tailwise.distributions.transform import AnyTransform
from tailwise.files.archive import one_line
from tailwise.model.base import CrossFitted, require_package
from tailwise.options import Between, Items, NotNegative, Positive

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Columns = Annotated[int, Between(1, 10_000_000)]

CAN = (
    "Bases that can be saved are CatBoost, LightGBM, HistGradientBoostingRegressor and linear models of "
    "scikit-learn (also behind SimpleImputer and StandardScaler); choose one of them, or base=None"
)


# -- CatBoost --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CatBoost:
    """Symmetric trees on numbers. Arrays hold those of all features, or of all trees, one after another."""

    borders: Floats
    counts: Ints  # (F,) borders of each feature
    missing: tuple[Literal["AsIs", "AsFalse", "AsTrue"], ...]
    has_missing: tuple[bool, ...]
    depths: Annotated[Ints, Items(1, 1_000_000)]  # (T,)
    splits: Ints  # numbers of borders
    filled: NDArray[np.bool_]  # which leaves are not 0; half of them have no rows
    values: Floats  # of those leaves
    scale: float
    bias: float

    def __post_init__(self) -> None:
        counts, depths = self.counts, self.depths
        sound = _fill(counts, self.borders) and _fill(depths, self.splits) and bool((depths <= 16).all())
        sound = sound and len(self.missing) == len(self.has_missing) == counts.size
        sound = sound and bool(((self.splits >= 0) & (self.splits < self.borders.size)).all())
        sound = sound and _fill(2**depths, self.filled) and self.values.shape == (int(self.filled.sum()),)
        if not sound or any((np.diff(borders) <= 0).any() for borders in _parts(self.borders, counts)):
            raise ValueError("the trees of CatBoost do not fit together")

    @classmethod
    def of(cls, model: Any) -> CatBoost:
        """Take a fitted model apart; one with other trees or features is an error."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.json")
            model.save_model(str(path), format="json")
            state = json.loads(path.read_text(encoding="utf-8"))
        parts = {"model_info", "features_info", "oblivious_trees", "scale_and_bias"}
        if set(state) != parts or set(state["features_info"]) != {"float_features"}:
            raise ValueError("it has other than symmetric trees of numbers for one target")
        features, trees = state["features_info"]["float_features"], state["oblivious_trees"]
        splits = [[split["split_index"] for split in tree["splits"] or ()] for tree in trees]
        leaves = _floats(value for tree in trees for value in tree["leaf_values"])
        scale, (bias,) = state["scale_and_bias"]
        return cls(
            _floats(border for feature in features for border in feature["borders"] or ()),
            _ints(len(feature["borders"] or ()) for feature in features),
            tuple(feature["nan_value_treatment"] for feature in features),
            tuple(feature["has_nans"] for feature in features),
            _ints(map(len, splits)),
            _ints(split for tree in splits for split in tree),
            leaves != 0,
            leaves[leaves != 0],
            float(scale),
            float(bias),
        )

    @property
    def features(self) -> int:
        """Number of columns."""
        return int(self.counts.size)

    def model(self) -> Any:
        """Build the model again; CatBoost reads JSON from a file only."""
        require_package("catboost")
        from catboost import CatBoostRegressor

        owners = np.repeat(np.arange(self.features), self.counts).tolist()
        borders = _parts(self.borders, self.counts)
        features = [
            {
                "borders": borders[place].tolist(),
                "feature_index": place,
                "flat_feature_index": place,
                "has_nans": self.has_missing[place],
                "nan_value_treatment": self.missing[place],
            }
            for place in range(self.features)
        ]
        splits = [
            {"split_index": k, "float_feature_index": owner, "border": border, "split_type": "FloatFeature"}
            for k, (owner, border) in enumerate(zip(owners, self.borders.tolist(), strict=True))
        ]
        leaves = np.zeros(self.filled.size)
        leaves[self.filled] = self.values
        trees = [
            {"splits": [splits[k] for k in of_tree.tolist()], "leaf_values": values.tolist()}
            for of_tree, values in zip(
                _parts(self.splits, self.depths), _parts(leaves, 2**self.depths), strict=True
            )
        ]
        state = {
            "model_info": {"params": {"flat_params": {}}},
            "features_info": {"float_features": features},
            "oblivious_trees": trees,
            "scale_and_bias": [self.scale, [self.bias]],
        }
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.json")
            path.write_text(json.dumps(state), encoding="utf-8")
            model = CatBoostRegressor().load_model(str(path), format="json")
        model.set_leaf_values(leaves)  # CatBoost rounds some of the numbers that it reads
        model.set_scale_and_bias(self.scale, self.bias)
        return model


# -- LightGBM --------------------------------------------------------------------------------------

_SPLITS = {
    "split_feature": "feature",
    "threshold": "threshold",
    "decision_type": "decision",
    "left_child": "left",
    "right_child": "right",
}
"""Names of the columns of splits in LightGBM's text and here."""


@dataclass(frozen=True)
class LightGBM:
    """Trees of LightGBM on numbers, one tree after another."""

    features: Columns
    sizes: Annotated[Ints, Items(1, 1_000_000)]  # (T,) splits of each tree, which has one leaf more
    feature: Ints
    threshold: Floats
    decision: Ints  # bits: a category, missing to the left, and two for the kind of missing values
    left: Ints  # the number of a split in its tree, or of a leaf k as -1 - k
    right: Ints
    value: Floats  # of the leaves

    def __post_init__(self) -> None:
        _check_trees(self, self.threshold, self.decision, lowest=-1 - self.sizes)
        if not _fill(self.sizes + 1, self.value) or not set(self.decision.tolist()) <= set(range(0, 16, 2)):
            raise ValueError("the trees of LightGBM do not fit together")

    @classmethod
    def of(cls, model: Any) -> LightGBM:
        """Take a fitted model apart. Each tree is a line of its number and lines ``name=values``."""
        booster = getattr(model, "booster_", model)
        text = booster.model_to_string().partition("end of trees")[0]
        trees = [
            dict(line.partition("=")[::2] for line in tree.split("\n")) for tree in text.split("Tree=")[1:]
        ]
        if any(tree["num_cat"] != "0" for tree in trees):
            raise ValueError("it has splits by category")
        columns: dict[str, Any] = {}
        for theirs, name in {**_SPLITS, "leaf_value": "value"}.items():
            make = _floats if name in ("threshold", "value") else _ints
            columns[name] = make(float(word) for tree in trees for word in tree.get(theirs, "").split())
        return cls(booster.num_feature(), _ints(int(tree["num_leaves"]) - 1 for tree in trees), **columns)

    def model(self) -> Any:
        """Build the model again from LightGBM's text of it."""
        require_package("lightgbm")
        from lightgbm import Booster

        lines = ["tree", "version=v4", "num_class=1", "num_tree_per_iteration=1", "label_index=0"]
        lines += [f"max_feature_idx={self.features - 1}", "objective=regression"]
        lines.append("feature_names=" + " ".join(f"x{place}" for place in range(self.features)))
        lines += ["feature_infos=" + " ".join(["none"] * self.features), ""]
        parts = {theirs: _parts(getattr(self, name), self.sizes) for theirs, name in _SPLITS.items()}
        parts["leaf_value"] = _parts(self.value, self.sizes + 1)
        for tree, size in enumerate(self.sizes):
            lines += [f"Tree={tree}", f"num_leaves={size + 1}", "num_cat=0"]
            lines += [
                f"{name}={' '.join(map(repr, values[tree].tolist()))}" for name, values in parts.items()
            ]
            lines += ["is_linear=0", "shrinkage=1", "", ""]
        return Booster(model_str="\n".join([*lines, "end of trees", ""]))


# -- scikit-learn ----------------------------------------------------------------------------------

_NODE = {
    "left": "left",
    "right": "right",
    "feature": "feature_idx",
    "threshold": "num_threshold",
    "missing_left": "missing_go_to_left",
    "value": "value",
}
"""Names of the columns of nodes here and in scikit-learn."""


@dataclass(frozen=True)
class Histogram:
    """A HistGradientBoostingRegressor on numbers: the nodes of its trees, one tree after another."""

    features: Columns
    baseline: float
    sizes: Annotated[Ints, Items(1, 1_000_000)]  # (T,) nodes of each tree
    left: Ints  # counted from the first node of the tree; -1 in a leaf
    right: Ints
    feature: Ints
    threshold: Floats
    missing_left: NDArray[np.bool_]
    value: Floats

    def __post_init__(self) -> None:
        _check_trees(self, self.threshold, self.missing_left, self.value, lowest=np.full_like(self.sizes, -1))
        if (self.sizes < 1).any() or ((self.left < 0) != (self.right < 0)).any():
            raise ValueError("a tree of the base does not fit together")

    @classmethod
    def of(cls, model: Any) -> Histogram:
        """Take a fitted model apart."""
        if model.is_categorical_ is not None:
            raise ValueError("it has categorical features")
        trees = [predictor.nodes for (predictor,) in model._predictors]
        nodes = np.concatenate(trees)
        leaf = nodes["is_leaf"].astype(bool)
        columns: dict[str, Any] = {name: nodes[theirs] for name, theirs in _NODE.items()}
        for name, in_leaf in (("left", -1), ("right", -1), ("feature", 0)):
            columns[name] = np.where(leaf, in_leaf, columns[name].astype(np.int64))
        columns["threshold"] = np.where(leaf, 0.0, columns["threshold"])
        columns["missing_left"] = columns["missing_left"].astype(bool)
        baseline = float(model._baseline_prediction.item())
        return cls(model.n_features_in_, baseline, _ints(map(len, trees)), **columns)

    def model(self) -> Any:
        """Build the model again: fitted to two rows, so that nothing is missing, then given these trees."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        model = HistGradientBoostingRegressor(max_iter=1).fit(np.zeros((2, self.features)), [1.0, 2.0])
        ((first,),) = model._predictors
        nodes = np.zeros(self.left.size, first.nodes.dtype)
        for name, theirs in _NODE.items():
            column = getattr(self, name)
            nodes[theirs] = np.maximum(column, 0) if name in ("left", "right") else column
        nodes["is_leaf"] = self.left == -1
        sets = first.binned_left_cat_bitsets, first.raw_left_cat_bitsets
        model._predictors = [[type(first)(tree, *sets)] for tree in _parts(nodes, self.sizes)]
        model._baseline_prediction = np.full_like(model._baseline_prediction, self.baseline)
        return model


@dataclass(frozen=True)
class Linear:
    """A linear model of scikit-learn, also behind imputers and scalers. It predicts itself."""

    steps: tuple[tuple[Literal["fill", "shift", "scale"], Floats], ...]
    coefficients: Floats
    intercept: float

    def __post_init__(self) -> None:
        shapes = {values.shape for values in (self.coefficients, *(values for _, values in self.steps))}
        if shapes != {(self.coefficients.size,)}:
            raise ValueError("a linear model needs a number for each column")

    @classmethod
    def of(cls, model: Any) -> Linear:
        """Take a fitted model, or a pipeline that ends with one, apart."""
        *first, last = [step for _, step in getattr(model, "steps", [("", model)])]
        if not hasattr(last, "coef_") or not hasattr(last, "intercept_"):
            raise ValueError(f"it ends with {type(last).__name__}")
        steps: list[Any] = []
        for step in first:
            kind = type(step).__name__
            if kind == "SimpleImputer":
                steps.append(("fill", step.statistics_))
            elif kind == "StandardScaler":
                steps += [("shift", step.mean_)] * step.with_mean + [("scale", step.scale_)] * step.with_std
            else:
                raise ValueError(f"it holds {kind}")
        return cls(tuple(steps), np.ravel(last.coef_), float(np.ravel(last.intercept_)[0]))

    @property
    def features(self) -> int:
        """Number of columns."""
        return int(self.coefficients.size)

    def model(self) -> Linear:
        """Return itself."""
        return self

    def predict(self, matrix: Floats) -> Floats:
        """(N, F) -> (N,)"""
        for kind, values in self.steps:
            if kind == "fill":
                matrix = np.where(np.isnan(matrix), values, matrix)
            else:
                matrix = matrix - values if kind == "shift" else matrix / values
        return np.asarray(matrix @ self.coefficients + self.intercept)


# -- bases -----------------------------------------------------------------------------------------

Saved = CatBoost | LightGBM | Histogram | Linear
_KINDS: dict[str, Any] = {"catboost": CatBoost, "lightgbm": LightGBM, "sklearn": Linear, "tailwise": Linear}


@dataclass(frozen=True)
class BaseState:
    """The models of one base, one per fold."""

    models: Annotated[tuple[Saved, ...], Items(1, 1000)]
    location: float
    scale: Positive
    spread: NotNegative
    errors: Annotated[Floats, Items(1)]
    transform: AnyTransform

    def __post_init__(self) -> None:
        shape, models = self.errors.shape, len(self.models)
        if len(shape) != 2 or shape[0] != models or not shape[1]:
            raise ValueError(f"the base has {models} models, and errors of shape {shape}")
        if (self.errors < 0).any() or (np.diff(self.errors) < 0).any():
            raise ValueError("the base has errors that are negative or not ascending")

    @classmethod
    def of(cls, base: CrossFitted) -> BaseState:
        """Take a fitted base apart; a kind that a file cannot hold is an error."""
        models = tuple(_taken_apart(model) for model in base.models)
        return cls(models, *(getattr(base, field.name) for field in fields(base)[1:]))

    def base(self) -> CrossFitted:
        """Build the base again."""
        models = tuple(model.model() for model in self.models)
        return CrossFitted(models, *(getattr(self, field.name) for field in fields(self)[1:]))


def _taken_apart(model: Any) -> Saved:
    if isinstance(model, Linear):
        return model
    name = type(model).__name__
    kind = _KINDS.get(type(model).__module__.partition(".")[0])
    if name == "HistGradientBoostingRegressor":
        kind = Histogram
    try:
        if kind is None:
            raise ValueError("it is of no known package")
        state: Saved = kind.of(model)
        if not isinstance(state, CatBoost):
            rows = np.random.default_rng(0).normal(size=(8, state.features))
            if not np.allclose(model.predict(rows), state.model().predict(rows), rtol=1e-9):
                raise ValueError("it has an option that changes its predictions in a way unknown here")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the base {name} cannot be saved: {one_line(error)}. {CAN}") from error
    return state


def _check_trees(state: LightGBM | Histogram, *columns: NDArray[Any], lowest: Ints) -> None:
    """Raise an error unless every index of a tree points into it, and every path through it ends.

    A child comes after its parent; a negative one, down to `lowest` in each tree, is a leaf. lowest: (T,)
    """
    sizes, children = state.sizes, (state.left, state.right)
    if not all(_fill(sizes, column) for column in (*children, state.feature, *columns)):
        raise ValueError("the trees of the base do not fit together")
    place = np.arange(state.left.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    ends, lowest = np.repeat(sizes, sizes), np.repeat(lowest, sizes)
    sound = (state.feature >= 0) & (state.feature < state.features)
    for child in children:
        sound &= (child < ends) & (child >= lowest) & ((child > place) | (child < 0))
    if not sound.all():
        raise ValueError("a tree of the base does not fit together")


def _fill(sizes: Ints, values: NDArray[Any]) -> bool:
    """Whether parts of these sizes make up the values. No size exceeds their number, so no sum overflows."""
    sound = sizes.ndim == values.ndim == 1 and bool(((sizes >= 0) & (sizes <= values.size)).all())
    return sound and int(sizes.sum()) == values.size


def _parts(values: NDArray[Any], sizes: Ints) -> list[NDArray[Any]]:
    return np.split(values, np.cumsum(sizes)[:-1])


def _ints(values: Iterable[float]) -> Ints:
    return np.fromiter(map(int, values), np.int64)


def _floats(values: Iterable[float]) -> Floats:
    return np.fromiter(values, np.float64)
