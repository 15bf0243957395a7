"""Fitted base regressors as JSON, without pickle, and back. Nothing in the JSON can name code to run."""

from __future__ import annotations

import base64
import json
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_regressor

from tailwise.estimator.archive import BASE, one_line
from tailwise.estimator.bases import CrossFitted, require_package
from tailwise.estimator.skops_files import from_skops, is_own, to_skops, unknown_types

_END = "end of trees\n"
_HEADER = (
    r"tree\nversion=v\d+\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\n"
    r"max_feature_idx=(?P<last>\d{1,9})\nobjective=\w[\w.: -]*\n"
    r"feature_names=(?P<names>.*)\nfeature_infos=(?P<infos>.*)\ntree_sizes=(?P<sizes>[\d ]+)\n\n"
)
_NUMBERS = r"[-+.einfa\d ]*"
_SPLIT_FIELDS = {
    "split_feature",
    "split_gain",
    "threshold",
    "decision_type",
    "left_child",
    "right_child",
    "internal_value",
    "internal_weight",
    "internal_count",
}
_TREE_FIELDS = [
    "num_leaves",
    "num_cat",
    "split_feature",
    "split_gain",
    "threshold",
    "decision_type",
    "left_child",
    "right_child",
    "leaf_value",
    "leaf_weight",
    "leaf_count",
    "internal_value",
    "internal_weight",
    "internal_count",
    "is_linear",
    "shrinkage",
]


def base_to_json(base: CrossFitted) -> dict[str, Any]:
    """Return a fitted base as JSON has it, without pickle; a base that has no such form is an error."""
    kind = next((name for name, form in _FORMS.items() if form.holds(base.models[0])), "scikit-learn")
    models = [_FORMS[kind].write(model) for model in base.models]
    return {
        "kind": kind,
        "location": base.location,
        "scale": base.scale,
        "spread": base.spread,
        "models": models,
    }


def base_from_json(state: Mapping[str, Any]) -> CrossFitted:
    """Rebuild a base from `base_to_json`. No code is named or run by the state."""
    if state["kind"] not in _FORMS:
        raise ValueError(f"unknown kind of base {state['kind']!r}")
    models = tuple(_FORMS[state["kind"]].read(model) for model in state["models"])
    if not models:
        raise ValueError("the base has no models")
    return CrossFitted(models, *(float(state[name]) for name in ("location", "scale", "spread")))


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
    return state


def _catboost_from_json(state: Any) -> Any:
    require_package("catboost")
    from catboost import CatBoostRegressor

    scale, (bias,) = float(state["scale_and_bias"][0]), map(float, state["scale_and_bias"][1])
    borders = sum(len(feature["borders"] or ()) for feature in state["features_info"]["float_features"])
    for tree in state["oblivious_trees"]:  # CatBoost would read beyond the end of these lists
        splits = [split["split_index"] for split in tree["splits"] or ()]
        if not all(0 <= split < borders for split in splits) or len(tree["leaf_values"]) != 2 ** len(splits):
            raise ValueError("a tree of the base does not fit its splits")
    with tempfile.TemporaryDirectory() as folder:  # CatBoost reads JSON from a file only
        path = Path(folder, "model.json")
        path.write_text(
            json.dumps({**state, "model_info": {"params": {"flat_params": {}}}}), encoding="utf-8"
        )
        model = CatBoostRegressor().load_model(str(path), format="json")
    # CatBoost rounds some of the numbers that it reads.
    values = [tree["leaf_values"] for tree in state["oblivious_trees"]]
    model.set_leaf_values(np.concatenate(values, dtype=np.float64))
    model.set_scale_and_bias(scale, bias)
    return model


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
    return model


def _is_known_type(name: str) -> bool:
    return name == "numpy.dtype" or (name.startswith("sklearn.") and is_own(name, "sklearn"))


_FORMS = {
    "catboost": _Form(_made_by("catboost"), _catboost_to_json, _catboost_from_json),
    "lightgbm": _Form(_made_by("lightgbm"), _lightgbm_to_text, _lightgbm_from_text),
    "scikit-learn": _Form(_made_by("sklearn"), _to_skops, _from_skops),
}
