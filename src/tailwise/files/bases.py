"""Fitted base regressors as plain values and arrays, and back. Nothing in a file can name code to run.

CatBoost and scikit-learn do not check their models themselves: they would read beyond the end of arrays. So
every index is compared with what it points to. Bases that take pages to check cannot be saved.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from tailwise.distributions.transform import AnyTransform
from tailwise.model.base import CrossFitted, require_package
from tailwise.model.trees import BoostedTrees, Floats, Ints, fills, parted
from tailwise.options import Items, NotNegative, Positive

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
        sound = (
            fills(counts, self.borders)
            and fills(depths, self.splits)
            and bool((depths <= 16).all())
            and len(self.missing) == len(self.has_missing) == counts.size
            and bool(((self.splits >= 0) & (self.splits < self.borders.size)).all())
            and fills(2**depths, self.filled)
            and self.values.shape == (int(self.filled.sum()),)
            and all((np.diff(borders) > 0).all() for borders in parted(self.borders, counts))
        )
        if not sound:
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
        borders = [feature["borders"] or [] for feature in features]
        splits = [[split["split_index"] for split in tree["splits"] or ()] for tree in trees]
        leaves = np.array([value for tree in trees for value in tree["leaf_values"]], np.float64)
        scale, (bias,) = state["scale_and_bias"]
        return cls(
            np.array([border for column in borders for border in column], np.float64),
            np.array(list(map(len, borders)), np.int64),
            tuple(feature["nan_value_treatment"] for feature in features),
            tuple(feature["has_nans"] for feature in features),
            np.array(list(map(len, splits)), np.int64),
            np.array([split for tree in splits for split in tree], np.int64),
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
        columns = zip(parted(self.borders, self.counts), self.has_missing, self.missing, strict=True)
        features = [
            {
                "borders": borders.tolist(),
                "feature_index": place,
                "flat_feature_index": place,
                "has_nans": has_missing,
                "nan_value_treatment": missing,
            }
            for place, (borders, has_missing, missing) in enumerate(columns)
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
                parted(self.splits, self.depths), parted(leaves, 2**self.depths), strict=True
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


# -- linear models --------------------------------------------------------------------------------


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
        if isinstance(model, Linear):
            return model
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
        made = cls(tuple(steps), np.ravel(last.coef_), float(np.ravel(last.intercept_)[0]))
        rows = np.random.default_rng(0).normal(size=(8, made.features))
        if not np.allclose(model.predict(rows), made.predict(rows), rtol=1e-9):
            raise ValueError("it has an option that changes its predictions in a way unknown here")
        return made

    @property
    def features(self) -> int:
        """Number of columns."""
        return int(self.coefficients.size)

    def predict(self, matrix: Floats) -> Floats:
        """(N, F) -> (N,)"""
        for kind, values in self.steps:
            if kind == "fill":
                matrix = np.where(np.isnan(matrix), values, matrix)
            else:
                matrix = matrix - values if kind == "shift" else matrix / values
        return np.asarray(matrix @ self.coefficients + self.intercept)


# -- bases -----------------------------------------------------------------------------------------

Saved = CatBoost | BoostedTrees | Linear


@dataclass(frozen=True)
class BaseState:
    """The models of one base, one per fold of each regressor."""

    models: Annotated[tuple[Saved, ...], Items(1, 1000)]
    location: float
    scale: Positive
    spread: NotNegative
    errors: Annotated[Floats, Items(1)]
    transform: AnyTransform
    weights: Annotated[tuple[NotNegative, ...], Items(1, 1000)]

    def __post_init__(self) -> None:
        shape, models = self.errors.shape, len(self.models)
        if abs(sum(self.weights) - 1) > 1e-6:
            raise ValueError("the weights of the base do not sum to 1")
        if len(shape) != 2 or shape[0] * len(self.weights) != models or not shape[1]:
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
        models = tuple(m.model() if isinstance(m, CatBoost) else m for m in self.models)
        return CrossFitted(models, *(getattr(self, field.name) for field in fields(self)[1:]))


def _taken_apart(model: Any) -> Saved:
    package = type(model).__module__.partition(".")[0]
    try:
        if package == "catboost":
            return CatBoost.of(model)
        if package == "lightgbm" or isinstance(model, (BoostedTrees, HistGradientBoostingRegressor)):
            return BoostedTrees.of(model)
        if package not in ("sklearn", "tailwise"):
            raise ValueError("it is of no known package")
        return Linear.of(model)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        name = type(model).__name__
        raise ValueError(f"the base {name} cannot be saved: {one_line(error)}. {CAN}") from error


def one_line(error: Exception) -> str:
    """Return an error as one line of bounded length, with its type unless it is a ValueError."""
    text = " ".join(str(error).split())
    text = text if len(text) <= 300 else f"{text[:300]}..."
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}"
