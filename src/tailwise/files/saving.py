"""Fitted models written to one file, without pickle. `tailwise.files.archive` lists what is in it."""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor, nn

from tailwise.data.tables.preprocessing import TablePreprocessor
from tailwise.files.archive import BASE, PREPROCESSING, WEIGHTS, Key, pack
from tailwise.files.base_files import base_to_json
from tailwise.files.manifest import check_manifest
from tailwise.files.skops_files import vectorizer_to_bytes
from tailwise.learning.loop import FitResult
from tailwise.model.inputs import TableInputs
from tailwise.model.model import Model
from tailwise.model.settings import DEFAULT_BACKBONE, Settings
from tailwise.networks.backbones import BACKBONES, ImageResNet, PiecewiseLinearEncoding
from tailwise.uncertainty.calibration import Calibration, HeldOut
from tailwise.uncertainty.conformal import OwnIntervals


def save(
    settings: Settings,
    model: Model,
    path: str | Path,
    *,
    overwrite: bool = False,
    key: Key | None = None,
) -> Path:
    """Write a fitted `TailRegressor` to one file and return its path; `load` gives the same predictions.

    A file that exists is an error unless
    `overwrite`. With `key` the file is signed. For a backbone of your own, only the weights are written. A
    `random_state` that is a generator becomes None, because only another `fit` would use it.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file, such as {path / 'model.tailwise'}")
    if path.exists() and not overwrite:
        raise ValueError(f"{path} exists already: pass overwrite=True to replace it, or name another file")
    members = {WEIGHTS: tensors_to_bytes(_tensors(model))}
    preprocessor = getattr(model.inputs, "preprocessor", None)
    if preprocessor is not None and preprocessor.vectorizer is not None:
        members[PREPROCESSING] = vectorizer_to_bytes(preprocessor.vectorizer)
    if model.base.targets:
        members[BASE] = json.dumps([base_to_json(base) for base in model.base.targets]).encode()
    pack(path, _description(settings, model), members, key=key, check=check_manifest)
    return path


def _description(settings: Settings, model: Model) -> dict[str, Any]:
    """Return the manifest without its checksums."""
    params = settings.get_params(deep=False)
    if isinstance(params["random_state"], np.random.RandomState):
        params["random_state"] = None
    if not isinstance(params["base"], (str, type(None))):
        params["base"] = None  # only another `fit` would use it
    if all(isinstance(target.intervals, OwnIntervals) for target in model.targets):
        params["conformal"] = None  # as fitted, if the parameter was changed since
    own = not isinstance(params["backbone"], str)
    first = model.networks[0]
    network = first.backbone
    if own:
        params["backbone"] = None
    preprocessor = getattr(model.inputs, "preprocessor", None)
    columns = model.inputs.columns
    names = getattr(columns, "feature_names_in_", None)
    return {
        "params": params,
        "parts": first.method.as_options(),
        "networks": len(model.networks),
        "base_given": model.base.given,
        "backbone": {
            **(
                {"own": type(network).__name__}
                if own
                else _recipe(_name(params["backbone"], DEFAULT_BACKBONE), network)
            ),
            "feature_dim": int(settings.feature_dim or cast("int", network.feature_dim)),
        },
        "n_features_in": getattr(columns, "n_features_in_", None),
        "feature_names_in": None if names is None else [str(name) for name in names],
        "picture_size": getattr(model.inputs, "size", None),
        "columns": None if preprocessor is None else preprocessor.columns,
        "column_kinds": _column_kinds(preprocessor),
        "several_targets": model.several,
        "target_names": None if model.names is None else list(model.names),
        "targets": [_target_to_dict(target) for target in model.targets],
        "held_out": model.record.held_out,
        "unseen": model.record.unseen,
        "recalibrated": model.record.recalibrated,
        "histories": [_history(history) for history in model.record.histories],
    }


def _history(history: FitResult) -> dict[str, Any]:
    """Return a history without its timings: the same model gives the same file."""
    rows = [{name: value for name, value in row.items() if name != "seconds"} for row in history.history]
    return {**asdict(history), "history": rows}


def _target_to_dict(calibrator: Calibration) -> dict[str, Any]:
    bins, density, held = calibrator.bins, calibrator.labels.density, calibrator.held
    return {
        "bins": {"edges": bins.edges, "counts": bins.counts, "rule": bins.rule},
        "scaling": {"kind": type(calibrator.scaling).__name__, **asdict(calibrator.scaling)},
        "conformal": None
        if isinstance(calibrator.intervals, OwnIntervals)
        else calibrator.intervals.to_dict(),
        "density": asdict(density),
        "emphasis": calibrator.emphasis,
        "bounds": asdict(calibrator.labels.bounds),
        "support": calibrator.labels.support.to_dict(),
        "held": type(held.prediction).__name__,
    }


def _name(backbone: str, default: str) -> str:
    return default if backbone == "auto" else backbone


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


def _tensors(model: Model) -> dict[str, Tensor]:
    """Return every tensor of a fitted model by name, including buffers that its state leaves out."""
    found: dict[str, Tensor] = {}
    for k, network in enumerate(model.networks):
        state = network.state_dict()
        for name, value in state.items():
            if not isinstance(value, Tensor):
                raise ValueError(
                    f"{name} of the backbone is a {type(value).__name__}, and only tensors are written: "
                    "return a tensor from get_extra_state"
                )
        found |= {f"network.{k}.{name}": _smallest(value) for name, value in state.items()}
        hidden = {name: value for name, value in network.named_buffers() if name not in state}
        found |= {f"buffer.{k}.{name}": _smallest(value) for name, value in hidden.items()}
    if isinstance(model.inputs, TableInputs):
        numeric = model.inputs.encoder.numeric
        found |= {f"numeric.{name}": value for name, value in numeric.named_buffers()}
    for t, calibrator in enumerate(model.targets):
        found |= {f"held.{t}.{k}": value for k, value in _held_to_tensors(calibrator.held).items()}
    # Copies: safetensors refuses tensors that share memory.
    return {name: value.detach().cpu().contiguous().clone() for name, value in found.items()}


def _smallest(value: Tensor) -> Tensor:
    """Return float64 numbers as float32 where that loses nothing, as for weights that were trained in it."""
    small = value.float()
    return small if value.dtype == torch.float64 and torch.equal(small.double(), value) else value


def _held_to_tensors(held: HeldOut) -> dict[str, Tensor]:
    """Return labels and parameters of held-out predictions, and the weights of a mixture."""
    prediction, found = held.prediction, {"labels": torch.from_numpy(held.labels)}
    found["groups"] = torch.from_numpy(held.groups)
    inner = prediction.parametric
    if inner is not prediction:
        found["weights"] = prediction.members().weight
    return found | dict(zip(inner.names, inner.parameters, strict=True))
