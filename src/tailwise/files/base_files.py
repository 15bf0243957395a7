"""Fitted base regressors as plain values and arrays, and back. Nothing in a file can name code to run.

CatBoost, LightGBM and scikit-learn do not check their models themselves: they would read beyond the end of
arrays. So every index is compared with what it points to. Bases that take pages to check cannot be saved.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tailwise.files.archive import one_line
from tailwise.model.base import CrossFitted, require_package
from tailwise.options import Between, Fraction, Items, NotNegative, Positive

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CAN = (
    "Bases that can be saved are CatBoost, LightGBM, HistGradientBoostingRegressor and linear models of "
    "scikit-learn (also behind SimpleImputer and StandardScaler); choose one of them, or base=None"
)
LINEAR = frozenset(
    {
        *("ARDRegression", "BayesianRidge", "ElasticNet", "ElasticNetCV", "HuberRegressor", "Lars", "LarsCV"),
        *("Lasso", "LassoCV", "LassoLars", "LassoLarsCV", "LassoLarsIC", "LinearRegression", "LinearSVR"),
        *("QuantileRegressor", "Ridge", "RidgeCV", "SGDRegressor", "TheilSenRegressor"),
    }
)
"""Regressors of scikit-learn that predict ``X @ coef_ + intercept_``."""


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
    values: Floats  # of leaves
    weights: Floats
    scale: float
    bias: float

    def __post_init__(self) -> None:
        counts, depths = self.counts, self.depths
        sound = _fill(counts, self.borders) and _fill(depths, self.splits) and bool((depths <= 16).all())
        sound = sound and _fill(2**depths, self.values) and self.values.shape == self.weights.shape
        sound = sound and len(self.missing) == len(self.has_missing) == counts.size
        sound = sound and bool(((self.splits >= 0) & (self.splits < self.borders.size)).all())
        if not sound or any((np.diff(borders) <= 0).any() for borders in _parts(self.borders, counts)):
            raise ValueError("the trees of CatBoost do not fit together")

    @classmethod
    def of(cls, model: Any) -> CatBoost:
        """Take a fitted model apart; one with other trees or features is an error."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.json")
            model.save_model(str(path), format="json")
            state = json.loads(path.read_text(encoding="utf-8"))
        known = {"model_info", "features_info", "oblivious_trees", "scale_and_bias"}
        if set(state) != known or set(state["features_info"]) != {"float_features"}:
            raise ValueError(
                "the base is not a model of CatBoost with symmetric trees of numbers for one target"
            )
        features, trees = state["features_info"]["float_features"], state["oblivious_trees"]
        splits = [[split["split_index"] for split in tree["splits"] or ()] for tree in trees]
        return cls(
            _floats(border for feature in features for border in feature["borders"] or ()),
            _ints(len(feature["borders"] or ()) for feature in features),
            tuple(feature["nan_value_treatment"] for feature in features),
            tuple(feature["has_nans"] for feature in features),
            _ints(map(len, splits)),
            _ints(split for tree in splits for split in tree),
            _floats(value for tree in trees for value in tree["leaf_values"]),
            _floats(weight for tree in trees for weight in tree["leaf_weights"]),
            float(state["scale_and_bias"][0]),
            float(state["scale_and_bias"][1][0]),
        )

    @property
    def features(self) -> int:
        """Number of columns."""
        return int(self.counts.size)

    def model(self) -> Any:
        """Build the model again; CatBoost reads JSON from a file only."""
        require_package("catboost")
        from catboost import CatBoostRegressor

        features = [
            {
                "borders": borders.tolist(),
                "feature_id": "",
                "feature_index": place,
                "flat_feature_index": place,
                "has_nans": self.has_missing[place],
                "nan_value_treatment": self.missing[place],
            }
            for place, borders in enumerate(_parts(self.borders, self.counts))
        ]
        owners = np.repeat(np.arange(self.counts.size), self.counts)
        names = ("split_index", "float_feature_index", "border", "split_type")
        columns = [column[self.splits].tolist() for column in (np.arange(owners.size), owners, self.borders)]
        splits = [
            dict(zip(names, (*split, "FloatFeature"), strict=True)) for split in zip(*columns, strict=True)
        ]
        leaves = [_parts(values, 2**self.depths) for values in (self.values, self.weights)]
        trees = [
            {
                "splits": splits[end - depth : end],
                "leaf_values": values.tolist(),
                "leaf_weights": weights.tolist(),
            }
            for depth, end, values, weights in zip(self.depths, np.cumsum(self.depths), *leaves, strict=True)
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
        model.set_leaf_values(self.values)  # CatBoost rounds some of the numbers that it reads
        model.set_scale_and_bias(self.scale, self.bias)
        return model


# -- LightGBM --------------------------------------------------------------------------------------

_END = "end of trees\n"
_HEADER = (
    r"tree\nversion=v\d+\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\n"
    r"max_feature_idx=(?P<last>\d{1,9})\nobjective=\w[\w.: -]*\n"
    r"feature_names=(?P<names>.*)\nfeature_infos=(?P<infos>.*)\ntree_sizes=(?P<sizes>[\d ]+)\n\n"
)
_NUMBERS = r"[-+.einfa\d ]*"
_SPLITS = ("split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child")
_LEAVES = ("leaf_value", "leaf_weight", "leaf_count")
_INNER = ("internal_value", "internal_weight", "internal_count")
_TREE_FIELDS = ["num_leaves", "num_cat", *_SPLITS, *_LEAVES, *_INNER, "is_linear", "shrinkage"]


@dataclass(frozen=True)
class LightGBM:
    """LightGBM's own text of its trees, which it does not check itself; as bytes.

    Categorical features and linear trees, which a base does not need, are errors.
    """

    features: int
    text: NDArray[np.uint8]

    def __post_init__(self) -> None:
        text = self.text.tobytes().decode()
        if self.text.ndim != 1 or not text.endswith(_END):
            raise ValueError("the base is cut short")
        head, *trees = text.removesuffix(_END).split("Tree=")
        header = re.fullmatch(_HEADER, head)
        if header is None or not trees:
            raise ValueError("the base has a header that is not LightGBM's for one target")
        given = (header["names"], header["infos"])
        if int(header["last"]) + 1 != self.features or any(len(g.split()) != self.features for g in given):
            raise ValueError(f"the base does not have {self.features} names and ranges of features")
        if [int(size) for size in header["sizes"].split()] != [len(tree) + len("Tree=") for tree in trees]:
            raise ValueError("the base has trees of other sizes than it says")
        for number, tree in enumerate(trees):
            _check_lightgbm_tree(tree, number, self.features)

    @classmethod
    def of(cls, model: Any) -> LightGBM:
        """Take the text of a fitted model."""
        booster = getattr(model, "booster_", model)
        text = str(booster.model_to_string()).partition(_END)[0] + _END
        return cls(booster.num_feature(), np.frombuffer(text.encode(), np.uint8))

    def model(self) -> Any:
        """Build the model again."""
        require_package("lightgbm")
        from lightgbm import Booster

        return Booster(model_str=self.text.tobytes().decode())


def _check_lightgbm_tree(tree: str, number: int, features: int) -> None:
    first, *lines = tree.removesuffix("\n\n\n").split("\n")
    fields = dict(line.partition("=")[::2] for line in lines)
    plain = re.fullmatch(_NUMBERS, "".join(fields.values()))
    if first != str(number) or list(fields) != _TREE_FIELDS or plain is None:
        raise ValueError(f"tree {number} of the base is not one of LightGBM's")
    if fields["num_cat"] != "0" or fields["is_linear"] != "0":
        raise ValueError("the base has categorical splits or linear trees, which cannot be saved")
    values = {name: np.array([float(word) for word in text.split()]) for name, text in fields.items()}
    leaves = values["leaf_value"].size
    inner = {*_SPLITS, *_INNER}
    sound = fields["num_leaves"] == str(leaves) and all(
        values[name].size == leaves - (name in inner)
        for name in _TREE_FIELDS[2:-2]
        if leaves > 1 or name in inner
    )
    sound = sound and _sound_children(
        np.stack([values["left_child"], values["right_child"]]), leaves - 1, -leaves
    )
    splits = values["split_feature"]
    if not sound or not _whole(splits, 0, features):
        raise ValueError(f"tree {number} of the base does not fit together")


def _whole(values: NDArray[Any], low: int, end: int) -> bool:
    return bool(((values % 1 == 0) & (values >= low) & (values < end)).all())


def _sound_children(children: NDArray[Any], nodes: int, low: int) -> bool:
    """Whether each child comes after its parent, so that every path ends; a negative one is a leaf. (2, n)"""
    after = (children > np.arange(nodes)) | (children < 0)
    return bool(after.all()) and _whole(children, low, nodes)


# -- scikit-learn ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Histogram:
    """A HistGradientBoostingRegressor on numbers: the nodes of its trees, one tree after another."""

    features: Annotated[int, Between(1, 10_000_000)]
    loss: Literal["squared_error", "absolute_error", "gamma", "poisson", "quantile"]
    quantile: Fraction | None
    baseline: float
    sizes: Annotated[Ints, Items(1, 1_000_000)]  # (T,) nodes of each tree
    left: Ints  # counted from the first node of the tree; -1 in a leaf
    right: Ints
    feature: Ints
    threshold: Floats
    missing_left: NDArray[np.bool_]
    value: Floats

    def __post_init__(self) -> None:
        sound = bool((self.sizes > 0).all()) and all(_fill(self.sizes, getattr(self, name)) for name in _NODE)
        sound = sound and bool(((self.left == -1) == (self.right == -1)).all())
        sound = sound and _whole(self.feature, 0, self.features)
        for left, right in zip(_parts(self.left, self.sizes), _parts(self.right, self.sizes), strict=True):
            sound = sound and _sound_children(np.stack([left, right]), left.size, -1)
        if not sound:
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
        baseline, sizes = float(model._baseline_prediction.item()), _ints(map(len, trees))
        return cls(model.n_features_in_, model.loss, model.quantile, baseline, sizes, **columns)

    def model(self) -> Any:
        """Build the model again: fitted to two rows, so that nothing is missing, then given these trees."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        model = HistGradientBoostingRegressor(loss=self.loss, quantile=self.quantile, max_iter=1)
        model.fit(np.zeros((2, self.features)), [1.0, 2.0])
        ((first,),) = model._predictors
        nodes = np.zeros(self.left.size, first.nodes.dtype)
        for name, theirs in _NODE.items():
            nodes[theirs] = (
                np.maximum(getattr(self, name), 0) if name in ("left", "right") else getattr(self, name)
            )
        nodes["is_leaf"] = self.left == -1
        sets = first.binned_left_cat_bitsets, first.raw_left_cat_bitsets
        model._predictors = [[type(first)(tree, *sets)] for tree in _parts(nodes, self.sizes)]
        model._baseline_prediction = np.full_like(model._baseline_prediction, self.baseline)
        return model


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
class Linear:
    """A linear model of scikit-learn, also behind imputers and scalers. It predicts itself."""

    steps: tuple[tuple[Literal["fill", "shift", "scale"], Floats], ...]
    coefficients: Floats
    intercept: float

    def __post_init__(self) -> None:
        if any(
            values.shape != (self.coefficients.size,) for _, values in (*self.steps, ("", self.coefficients))
        ):
            raise ValueError("a linear model needs a number for each column")

    @classmethod
    def of(cls, model: Any) -> Linear:
        """Take a fitted model, or a pipeline that ends with one, apart."""
        *first, last = [step for _, step in getattr(model, "steps", [("", model)])]
        if type(last).__name__ not in LINEAR:
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


@dataclass(frozen=True)
class BaseState:
    """The models of one base, one per fold."""

    models: Annotated[tuple[Saved, ...], Items(1, 1000)]
    location: float
    scale: Positive
    spread: NotNegative
    errors: Annotated[Floats, Items(1)]

    def __post_init__(self) -> None:
        if self.errors.ndim != 1 or self.errors[0] < 0 or (np.diff(self.errors) < 0).any():
            raise ValueError("the base has errors that are negative or not ascending")


def base_state(base: CrossFitted) -> BaseState:
    """Return a fitted base as plain values and arrays; a kind that a file cannot hold is an error."""
    models = tuple(_taken_apart(model) for model in base.models)
    return BaseState(models, base.location, base.scale, base.spread, base.errors)


def base_of(state: BaseState) -> CrossFitted:
    """Build a base again."""
    models = tuple(model.model() for model in state.models)
    return CrossFitted(models, state.location, state.scale, state.spread, state.errors)


def _taken_apart(model: Any) -> Saved:
    if isinstance(model, Linear):
        return model
    package, name = type(model).__module__.partition(".")[0], type(model).__name__
    kinds: dict[str, Any] = {"catboost": CatBoost, "lightgbm": LightGBM, "sklearn": Linear}
    kind = Histogram if name == "HistGradientBoostingRegressor" else kinds.get(package)
    try:
        if kind is None:
            raise ValueError("it is of no known package")
        state: Saved = kind.of(model)
        if package == "sklearn":
            _check_same(model, state)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the base {name} cannot be saved: {one_line(error)}. {CAN}") from error
    return state


def _check_same(model: Any, state: Any) -> None:
    """Raise an error if a model has an option that its state does not show."""
    rows = np.random.default_rng(0).normal(size=(8, state.features))
    if not np.allclose(model.predict(rows), state.model().predict(rows), rtol=1e-9):
        raise ValueError("it has an option that changes its predictions in a way unknown here")


def _fill(sizes: Ints, values: NDArray[Any]) -> bool:
    """Whether parts of these sizes make up the values. No size exceeds their number, so no sum overflows."""
    sound = sizes.ndim == values.ndim == 1 and bool(((sizes >= 0) & (sizes <= values.size)).all())
    return sound and int(sizes.sum()) == values.size


def _parts(values: NDArray[Any], sizes: Ints) -> list[NDArray[Any]]:
    return np.split(values, np.cumsum(sizes)[:-1])


def _ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, np.int64)


def _floats(values: Iterable[float]) -> Floats:
    return np.fromiter(values, np.float64)
