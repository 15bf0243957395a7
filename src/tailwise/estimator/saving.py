"""Fitted models written to one file, without pickle. `tailwise.estimator.archive` lists what is in it."""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor, nn

from tailwise.core.distributions import NIG, Mixture, Normal
from tailwise.data.tables.preprocessing import TablePreprocessor
from tailwise.estimator.archive import BASE, PREPROCESSING, WEIGHTS, Key, pack
from tailwise.estimator.base_files import base_to_json
from tailwise.estimator.manifest import check_manifest
from tailwise.estimator.skops_files import vectorizer_to_bytes
from tailwise.learning.loop import FitResult
from tailwise.networks.backbones import BACKBONES, ImageResNet, PiecewiseLinearEncoding
from tailwise.networks.ensembles import Ensemble
from tailwise.networks.trainable import Trainable
from tailwise.uncertainty.calibrator import Calibrator, HeldOut

if TYPE_CHECKING:
    from tailwise.estimator.regressor import TailRegressor


def save(
    estimator: TailRegressor,
    path: str | Path,
    *,
    default_backbone: str,
    overwrite: bool = False,
    key: Key | None = None,
) -> Path:
    """Write a fitted `TailRegressor` to one file and return its path; `load` gives the same predictions.

    `default_backbone` is the name behind ``backbone="auto"``. A file that exists is an error unless
    `overwrite`. With `key` the file is signed. For a backbone of your own, only the weights are written. A
    `random_state` that is a generator becomes None, because only another `fit` would use it.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file, such as {path / 'model.tailwise'}")
    if path.exists() and not overwrite:
        raise ValueError(f"{path} exists already: pass overwrite=True to replace it, or name another file")
    members = {WEIGHTS: tensors_to_bytes(_tensors(estimator))}
    preprocessor = estimator.preprocessor_
    if preprocessor is not None and preprocessor.vectorizer is not None:
        members[PREPROCESSING] = vectorizer_to_bytes(preprocessor.vectorizer)
    if estimator.base_ is not None:
        members[BASE] = json.dumps([base_to_json(base) for base in estimator.base_]).encode()
    pack(path, _description(estimator, default_backbone), members, key=key, check=check_manifest)
    return path


def _description(estimator: TailRegressor, default_backbone: str) -> dict[str, Any]:
    """Return the manifest without its checksums."""
    params = estimator.get_params(deep=False)
    if isinstance(params["random_state"], np.random.RandomState):
        params["random_state"] = None
    if not isinstance(params["base"], (str, type(None))):
        params["base"] = None  # only another `fit` would use it
    if all(calibrator.conformal is None for calibrator in estimator.calibrators_):
        params["conformal"] = None  # as fitted, if the parameter was changed since
    own = not isinstance(params["backbone"], str)
    first = estimator.networks_[0]
    network = _backbone(first)
    if own:
        params["backbone"] = None
    preprocessor = estimator.preprocessor_
    names = getattr(estimator, "feature_names_in_", None)
    return {
        "params": params,
        "parts": first.method,
        "networks": len(estimator.networks_),
        "base_given": estimator.base_given_,
        "backbone": {
            **(
                {"own": type(network).__name__}
                if own
                else _recipe(_name(params["backbone"], default_backbone), network)
            ),
            "feature_dim": int(estimator.feature_dim or cast("int", network.feature_dim)),
        },
        "n_features_in": getattr(estimator, "n_features_in_", None),
        "feature_names_in": None if names is None else [str(name) for name in names],
        "picture_size": estimator.picture_size_,
        "columns": None if preprocessor is None else preprocessor.columns,
        "column_kinds": _column_kinds(preprocessor),
        "several_targets": isinstance(estimator.bins_, list),
        "target_names": estimator.target_names_,
        "targets": [_target_to_dict(calibrator) for calibrator in estimator.calibrators_],
        "held_out": estimator.held_out_,
        "unseen": estimator.unseen_,
        "recalibrated": estimator.recalibrated_,
        "histories": [_history(history) for history in estimator.histories_],
    }


def _history(history: FitResult) -> dict[str, Any]:
    """Return a history without its timings: the same model gives the same file."""
    rows = [{name: value for name, value in row.items() if name != "seconds"} for row in history.history]
    return {**asdict(history), "history": rows}


def _target_to_dict(calibrator: Calibrator) -> dict[str, Any]:
    bins, density, held = calibrator.bins, calibrator.density, calibrator.held
    return {
        "bins": {"edges": bins.edges, "counts": bins.counts, "rule": bins.rule},
        "scaling": None
        if calibrator.scaling is None
        else {"kind": type(calibrator.scaling).__name__, **asdict(calibrator.scaling)},
        "conformal": None if calibrator.conformal is None else calibrator.conformal.to_dict(),
        "density": None if density is None else asdict(density),
        "emphasis": calibrator.emphasis,
        "bounds": None if calibrator.bounds is None else asdict(calibrator.bounds),
        "support": None if calibrator.support is None else calibrator.support.to_dict(),
        "held": None if held is None else type(held.prediction).__name__,
    }


def _name(backbone: str, default: str) -> str:
    return default if backbone == "auto" else backbone


def _backbone(model: Trainable) -> nn.Module:
    network = model.networks[0] if isinstance(model, Ensemble) else model
    return cast("nn.Module", network.backbone)


def _recipe(name: str, network: nn.Module) -> dict[str, Any]:
    """Return what builds the network again, including its defaults of today."""
    if isinstance(network, ImageResNet):
        return {"name": name, "options": {"mean": network.mean, "std": network.std}}
    signature = inspect.signature(BACKBONES[name]).parameters
    options = {k: p.default for k, p in signature.items() if k not in ("in_dim", "rows")}
    for part in network.modules():
        if isinstance(part, PiecewiseLinearEncoding):
            options["edges"] = part.edges
    return {"name": name, "options": options}


def _column_kinds(preprocessor: TablePreprocessor | None) -> dict[str, str] | None:
    """Return the kind of each column, for people who read the manifest."""
    if preprocessor is None or preprocessor.columns is None:
        return None
    kinds = getattr(preprocessor.vectorizer, "column_to_kind_", {})
    fallback = "numeric" if preprocessor.vectorizer is None else "dropped"
    return {name: str(kinds.get(name, fallback)) for name in preprocessor.columns}


def _tensors(estimator: TailRegressor) -> dict[str, Tensor]:
    """Return every tensor of a fitted model by name, including buffers that its state leaves out."""
    found: dict[str, Tensor] = {}
    for k, network in enumerate(estimator.networks_):
        state = network.state_dict()
        for name, value in state.items():
            if not isinstance(value, Tensor):
                raise ValueError(
                    f"{name} of the backbone is a {type(value).__name__}, and only tensors are written: "
                    "return a tensor from get_extra_state"
                )
        found |= {f"network.{k}.{name}": value for name, value in state.items()}
        hidden = {name: value for name, value in network.named_buffers() if name not in state}
        found |= {f"buffer.{k}.{name}": value for name, value in hidden.items()}
    if estimator.preprocessor_ is not None:
        found |= {f"numeric.{name}": value for name, value in estimator.preprocessor_.numeric.named_buffers()}
    for t, calibrator in enumerate(estimator.calibrators_):
        if calibrator.held is not None:
            found |= {f"held.{t}.{k}": value for k, value in _held_to_tensors(calibrator.held).items()}
    # Copies: safetensors refuses tensors that share memory.
    return {name: value.detach().cpu().contiguous().clone() for name, value in found.items()}


def _held_to_tensors(held: HeldOut) -> dict[str, Tensor]:
    """Return labels and parameters of held-out predictions, and the weights of a mixture."""
    prediction, found = held.prediction, {"labels": torch.from_numpy(held.labels)}
    if held.groups is not None:
        found["groups"] = torch.from_numpy(held.groups)
    if isinstance(prediction, Mixture):
        found["weights"] = prediction.weights
        prediction = prediction.components
    assert isinstance(prediction, (Normal, NIG))
    return found | dict(zip(prediction.names, prediction.parameters, strict=True))
