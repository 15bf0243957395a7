"""Fitted base regressors as JSON, without pickle, and back. Nothing in the JSON can name code to run."""

from __future__ import annotations

import base64
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_regressor

from tailwise.core.labels import checked_labels
from tailwise.files.archive import BASE, one_line
from tailwise.files.skops_files import from_skops, to_skops, unknown_types
from tailwise.model.base import CrossFitted, require_package

MAX_MODELS = 1000
"""Models of one base."""
_END = "end of trees\n"
_HEADER = (
    r"tree\nversion=v\d+\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\n"
    r"max_feature_idx=(?P<last>\d{1,9})\nobjective=\w[\w.: -]*\n"
    r"feature_names=(?P<names>.*)\nfeature_infos=(?P<infos>.*)\ntree_sizes=(?P<sizes>[\d ]+)\n\n"
)
_SEARCH_TREES = [
    f"_{file}_tree.{name}{bits}"
    for file, name in (("kd", "KDTree"), ("ball", "BallTree"))
    for bits in ("", 32, 64)
]
_NUMBERS = r"[-+.einfa\d ]*"
_SPLITS = ("split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child")
_LEAVES = ("leaf_value", "leaf_weight", "leaf_count")
_INNER = ("internal_value", "internal_weight", "internal_count")
_SPLIT_FIELDS = {*_SPLITS, *_INNER}
_TREE_FIELDS = ["num_leaves", "num_cat", *_SPLITS, *_LEAVES, *_INNER, "is_linear", "shrinkage"]


def base_to_json(base: CrossFitted) -> dict[str, Any]:
    """Return a fitted base as JSON has it, without pickle; a base that has no such form is an error."""
    kind = next((name for name, form in _FORMS.items() if form.holds(base.models[0])), "scikit-learn")
    models = [_FORMS[kind].write(model) for model in base.models]
    return {
        "kind": kind,
        "location": base.location,
        "scale": base.scale,
        "spread": base.spread,
        **({} if base.errors is None else {"errors": base.errors.tolist()}),
        "models": models,
    }


def base_from_json(state: Mapping[str, Any]) -> CrossFitted:
    """Rebuild a base from `base_to_json`. No code is named or run by the state."""
    if state["kind"] not in _FORMS:
        raise ValueError(f"unknown kind of base {state['kind']!r:.80}")
    if not isinstance(state["models"], list) or len(state["models"]) > MAX_MODELS:
        raise ValueError(f"the base does not hold a list of at most {MAX_MODELS} models")
    models = tuple(_FORMS[state["kind"]].read(model) for model in state["models"])
    if not models:
        raise ValueError("the base has no models")
    location, scale, spread = (float(state[name]) for name in ("location", "scale", "spread"))
    if not (np.isfinite([location, scale, spread]).all() and scale > 0 and spread >= 0):
        raise ValueError("the base has a location, scale or spread that is not finite and positive")
    errors = None if "errors" not in state else checked_labels(state["errors"], "errors of the base")
    if errors is not None and (errors[0] < 0 or (np.diff(errors) < 0).any()):
        raise ValueError("the base has errors that are negative or not ascending")
    return CrossFitted(models, location, scale, spread, errors)


@dataclass(frozen=True)
class _Form:
    """How models of one library become JSON and come back."""

    holds: Callable[[Any], bool]
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _made_by(package: str) -> Callable[[Any], bool]:
    return lambda model: type(model).__module__.partition(".")[0] == package


def _catboost_to_json(model: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.json")
        model.save_model(str(path), format="json")
        state = json.loads(path.read_text(encoding="utf-8"))
    del state["model_info"]  # the time of training and a random id
    checked_catboost(state)
    return state


def _catboost_from_json(state: Any) -> Any:
    require_package("catboost")
    from catboost import CatBoostRegressor

    state = checked_catboost(state)
    with tempfile.TemporaryDirectory() as folder:  # CatBoost reads JSON from a file only
        path = Path(folder, "model.json")
        path.write_text(
            json.dumps({**state, "model_info": {"params": {"flat_params": {}}}}), encoding="utf-8"
        )
        model = CatBoostRegressor().load_model(str(path), format="json")
    # CatBoost rounds some of the numbers that it reads.
    values = [tree["leaf_values"] for tree in state["oblivious_trees"]]
    model.set_leaf_values(np.concatenate(values, dtype=np.float64))
    model.set_scale_and_bias(state["scale_and_bias"][0], state["scale_and_bias"][1][0])
    return model


def checked_catboost(state: Any) -> dict[str, Any]:
    """Return CatBoost's JSON of a model, rebuilt, if all of it fits together.

    CatBoost does not check that itself: it would read beyond the end of lists. Only numeric features and
    symmetric trees, which a base has, are known here.
    """
    if not isinstance(state, dict) or set(state) != {"features_info", "oblivious_trees", "scale_and_bias"}:
        raise ValueError("the base is not a model of CatBoost with symmetric trees for one target")
    if set(state["features_info"]) != {"float_features"}:
        raise ValueError("the base has features of CatBoost that are not numbers")
    features = [_catboost_feature(*each) for each in enumerate(state["features_info"]["float_features"])]
    ends = np.cumsum([len(feature["borders"]) for feature in features])
    trees = [_catboost_tree(tree, ends) for tree in state["oblivious_trees"]]
    scale, biases = state["scale_and_bias"]
    (scale,), (bias,) = _numbers([scale], "scale"), _numbers(biases, "bias")
    return {
        "features_info": {"float_features": features},
        "oblivious_trees": trees,
        "scale_and_bias": [float(scale), [float(bias)]],
    }


def _catboost_feature(place: int, feature: Any) -> dict[str, Any]:
    borders = _numbers(feature["borders"] or [], "border")
    indices = [feature[name] for name in ("feature_index", "flat_feature_index")]
    missing = feature["nan_value_treatment"]
    if indices != [place, place] or any(type(index) is not int for index in indices):
        raise ValueError(f"feature {place} of the base has another number")
    if missing not in ("AsIs", "AsFalse", "AsTrue") or type(feature["has_nans"]) is not bool:
        raise ValueError(f"feature {place} of the base does not say what a missing value means")
    if any(high <= low for low, high in pairwise(borders)):
        raise ValueError(f"feature {place} of the base has borders that do not ascend")
    return {
        "borders": borders,
        "feature_id": str(feature.get("feature_id", "")),
        "feature_index": place,
        "flat_feature_index": place,
        "has_nans": feature["has_nans"],
        "nan_value_treatment": missing,
    }


def _catboost_tree(tree: Any, ends: NDArray[np.int64]) -> dict[str, Any]:
    """Return a tree whose splits are borders that exist. ends: (F,) after the borders of each feature"""
    splits = []
    for split in tree["splits"] or ():
        index, feature = split["split_index"], split["float_feature_index"]
        if type(index) is not int or not 0 <= index < (ends[-1] if ends.size else 0):
            raise ValueError("a tree of the base does not fit its splits")
        if split["split_type"] != "FloatFeature" or feature != int(np.searchsorted(ends, index, "right")):
            raise ValueError("a tree of the base does not fit its features")
        (border,) = _numbers([split["border"]], "border")
        splits.append(
            {
                "border": border,
                "float_feature_index": int(feature),
                "split_index": index,
                "split_type": "FloatFeature",
            }
        )
    values, weights = (_numbers(tree[name], name) for name in ("leaf_values", "leaf_weights"))
    if not len(values) == len(weights) == 2 ** len(splits):
        raise ValueError("a tree of the base does not fit its splits")
    return {"leaf_values": values, "leaf_weights": weights, "splits": splits}


def _numbers(values: Any, what: str) -> list[float]:
    """Return a list of finite numbers as JSON has them."""
    array = np.array(values if isinstance(values, list) else [None])
    if array.ndim != 1 or (array.size and (array.dtype.kind not in "if" or not np.isfinite(array).all())):
        raise ValueError(f"the base has a {what} that is not a finite number")
    return list(array.tolist())


def _lightgbm_to_text(model: Any) -> str:
    text = str(getattr(model, "booster_", model).model_to_string())
    return checked_lightgbm(text.partition(_END)[0] + _END)


def _lightgbm_from_text(text: str) -> Any:
    require_package("lightgbm")
    from lightgbm import Booster

    return Booster(model_str=checked_lightgbm(text))


def checked_lightgbm(text: str) -> str:
    """Return LightGBM's text of a model if all of it fits together; LightGBM does not check that itself.

    Categorical features and linear trees, which a base does not need, are errors too.
    """
    if not text.endswith(_END):
        raise ValueError("the base is cut short")
    head, *trees = text.removesuffix(_END).split("Tree=")
    header = re.fullmatch(_HEADER, head)
    if header is None or not trees:
        raise ValueError("the base has a header that is not LightGBM's for one target")
    features = int(header["last"]) + 1
    if not len(header["names"].split()) == len(header["infos"].split()) == features:
        raise ValueError(f"the base does not have {features} names and ranges of features")
    if [int(size) for size in header["sizes"].split()] != [len(tree) + len("Tree=") for tree in trees]:
        raise ValueError("the base has trees of other sizes than it says")
    for number, tree in enumerate(trees):
        _check_lightgbm_tree(tree, number, features)
    return text


def _check_lightgbm_tree(tree: str, number: int, features: int) -> None:
    first, *lines = tree.removesuffix("\n\n\n").split("\n")
    fields = dict(line.partition("=")[::2] for line in lines)
    plain = re.fullmatch(_NUMBERS, "".join(fields.values()))
    if first != str(number) or list(fields) != _TREE_FIELDS or plain is None:
        raise ValueError(f"tree {number} of the base is not one of LightGBM's")
    if fields["num_cat"] != "0" or fields["is_linear"] != "0":
        raise ValueError("the base has categorical splits or linear trees, which cannot be saved")
    leaves = int(fields["num_leaves"])
    values = {name: np.array([float(word) for word in text.split()]) for name, text in fields.items()}
    splits, left, right = (values[name] for name in ("split_feature", "left_child", "right_child"))
    children, parents = np.concatenate([left, right]), np.tile(np.arange(leaves - 1), 2)
    sound = values["leaf_value"].size == leaves and all(
        values[name].size == leaves - (name in _SPLIT_FIELDS)
        for name in _TREE_FIELDS[2:-2]
        if leaves > 1 or name in _SPLIT_FIELDS
    )
    # A child comes after its parent, so that every path ends in a leaf.
    sound = sound and bool((((children > parents) & (children < leaves - 1)) | (children < 0)).all())
    sound = sound and bool((children % 1 == 0).all() and (children >= -leaves).all())
    sound = sound and bool((splits % 1 == 0).all() and ((splits >= 0) & (splits < features)).all())
    if not sound:
        raise ValueError(f"tree {number} of the base does not fit together")


def _to_skops(model: Any) -> str:
    name = type(model).__name__
    try:
        data = to_skops(model)
        unknown = unknown_types(data, _is_known_type)
    except Exception as error:  # skops has several for objects that it cannot write
        raise ValueError(f"the base {name} cannot be saved without pickle: {one_line(error)}") from error
    if unknown:
        raise ValueError(
            f"the base {name} holds {unknown[0]:.80}, which cannot be saved without pickle: choose a base of "
            "scikit-learn, CatBoost or LightGBM"
        )
    return base64.b64encode(data).decode()


def _from_skops(text: str) -> Any:
    data = base64.b64decode(text, validate=True)
    model = from_skops(data, BASE, _is_known_type)
    if not is_regressor(model):
        raise ValueError(f"the base is a {type(model).__name__}, not a regressor")
    for part in _parts_of(model):
        name = type(part).__name__
        if name == "TreePredictor":
            _check_nodes(part.nodes, ("left", "right"), "feature_idx", model.n_features_in_)
        elif name == "Tree":
            nodes = part.__getstate__()["nodes"]
            _check_nodes(nodes, ("left_child", "right_child"), "feature", part.n_features)
        elif name.startswith(("KDTree", "BallTree")):
            _check_search_tree(*part.__getstate__()[:7])
    return model


def _parts_of(value: Any) -> Iterator[Any]:
    """Yield an object and everything that it holds, each once."""
    waiting, seen = [value], set()
    while waiting:
        part = waiting.pop()
        if id(part) in seen or isinstance(part, (str, bytes, int, float, np.generic)):
            continue
        seen.add(id(part))
        yield part
        if isinstance(part, np.ndarray):
            waiting += part.ravel().tolist() if part.dtype.hasobject else []
        elif isinstance(part, (list, tuple, set)):
            waiting += part
        else:
            waiting += (part if isinstance(part, dict) else getattr(part, "__dict__", {})).values()


def _check_nodes(nodes: Any, children: tuple[str, str], feature: str, features: int) -> None:
    """Raise an error if a tree points outside itself or at no column: nothing later would notice."""
    leaf = nodes["is_leaf"].astype(bool) if "is_leaf" in nodes.dtype.names else nodes[children[0]] == -1
    inner, place = ~leaf, np.arange(len(nodes))
    sound = len(nodes) > 0 and bool(((nodes[feature] >= 0) & (nodes[feature] < features))[inner].all())
    for name in children:  # a child comes after its parent, so that every path ends in a leaf
        child = nodes[name].astype(np.int64)
        sound = sound and bool(((child > place) & (child < len(nodes)))[inner].all())
    if not sound:
        raise ValueError("a tree of the base does not fit together")


def _check_search_tree(
    rows: Any, order: Any, nodes: Any, bounds: Any, leaf_size: int, levels: int, count: int
) -> None:
    """Raise an error if the tree of a nearest-neighbour search points outside its rows."""
    ends = (nodes["idx_start"], nodes["idx_end"])
    sound = levels < 60 and 2**levels - 1 == count == len(nodes) == bounds.shape[1] and leaf_size > 0
    sound = sound and order.shape == rows.shape[:1] and bounds.shape[2] == rows.shape[1]
    sound = sound and bool(((order >= 0) & (order < len(rows))).all())
    if not (sound and bool(((ends[0] >= 0) & (ends[0] <= ends[1]) & (ends[1] <= len(rows))).all())):
        raise ValueError("a tree of the base does not fit together")


KNOWN_TYPES = frozenset(
    {
        "numpy.dtype",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.tree._tree.Tree",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
        "sklearn.utils._bunch.Bunch",
        *(
            f"sklearn._loss.loss.{name}"
            for name in (
                *("AbsoluteError", "HalfGammaLoss", "HalfPoissonLoss", "HalfSquaredError"),
                *("HalfTweedieLoss", "HalfTweedieLossIdentity", "HuberLoss", "PinballLoss"),
            )
        ),
        *(
            f"sklearn.gaussian_process.kernels.{name}"
            for name in (
                *("CompoundKernel", "ConstantKernel", "DotProduct", "ExpSineSquared", "Exponentiation"),
                *("Matern", "PairwiseKernel", "Product", "RBF", "RationalQuadratic", "Sum", "WhiteKernel"),
            )
        ),
        *(
            f"sklearn.metrics._dist_metrics.{name}Distance{bits}"
            for name in ("Chebyshev", "Euclidean", "Manhattan", "Minkowski")
            for bits in ("", 32, 64)
        ),
        *(f"sklearn.neighbors.{name}" for name in _SEARCH_TREES),
    }
)
"""What a base of scikit-learn may hold besides what skops trusts: its estimators and ufuncs."""


def _is_known_type(name: str) -> bool:
    return name in KNOWN_TYPES


_FORMS = {
    "catboost": _Form(_made_by("catboost"), _catboost_to_json, _catboost_from_json),
    "lightgbm": _Form(_made_by("lightgbm"), _lightgbm_to_text, _lightgbm_from_text),
    "scikit-learn": _Form(_made_by("sklearn"), _to_skops, _from_skops),
}
