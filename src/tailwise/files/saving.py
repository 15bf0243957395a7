"""Fitted models written to one file, without pickle. `tailwise.files.archive` lists what is in it."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from tailwise.calibration.intervals import OwnIntervals
from tailwise.files.archive import Key, pack
from tailwise.files.base_files import base_state
from tailwise.files.codec import read, write
from tailwise.files.model_state import Backbone, ModelState, NetworkOptions, TableState, Target
from tailwise.model.inputs import PictureInputs, TableInputs
from tailwise.model.model import Model
from tailwise.model.settings import DEFAULT_BACKBONE, Settings
from tailwise.networks.backbones import BACKBONES, ImageResNet, PiecewiseLinearEncoding
from tailwise.tables.encode import TablePreprocessor
from tailwise.training.loop import FitResult


def save(
    settings: Settings,
    model: Model,
    path: str | Path,
    *,
    overwrite: bool = False,
    key: Key | None = None,
) -> Path:
    """Write a fitted `TailRegressor` to one file and return its path; `load` gives the same predictions.

    A file that exists is an error unless `overwrite`. With `key` the file is signed. For a backbone of your
    own, only the weights are written. A `random_state` that is a generator becomes None, because only another
    `fit` would use it. A base that no file can hold is an error; see `tailwise.files.base_files.CAN`.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file, such as {path / 'model.tailwise'}")
    if path.exists() and not overwrite:
        raise ValueError(f"{path} exists already: pass overwrite=True to replace it, or name another file")
    arrays = _tensors(model)
    state = write(ModelState, _state(settings, model), "model", arrays)
    pack(path, state, arrays, key=key, check=lambda found, stored: read(ModelState, found, "model", stored))
    return path


def _state(settings: Settings, model: Model) -> ModelState:
    params = settings.get_params(deep=False)
    if isinstance(params["random_state"], np.random.RandomState):
        params["random_state"] = None
    if not isinstance(params["base"], (str, type(None))):
        params["base"] = None  # only another `fit` would use it
    if all(isinstance(target.intervals, OwnIntervals) for target in model.targets):
        params["conformal"] = None  # as fitted, if the parameter was changed since
    inputs, backbone = model.inputs, params["backbone"]
    network = model.networks[0].backbone
    if isinstance(backbone, str):
        name = DEFAULT_BACKBONE if backbone == "auto" else backbone
        recipe = Backbone(name, None, _options(name, network), cast("int", network.feature_dim))
    else:
        dim = int(settings.feature_dim or cast("int", network.feature_dim))
        params["backbone"], recipe = None, Backbone(None, type(network).__name__, NetworkOptions(), dim)
    names = getattr(inputs.columns, "feature_names_in_", None)
    return ModelState(
        params=params,
        parts=model.networks[0].method.as_options(),
        backbone=recipe,
        n_features_in=getattr(inputs.columns, "n_features_in_", None),
        feature_names_in=None if names is None else tuple(map(str, names)),
        picture_size=inputs.size if isinstance(inputs, PictureInputs) else None,
        table=_table(inputs.encoder) if isinstance(inputs, TableInputs) else None,
        base_given=model.base.given,
        bases=tuple(map(base_state, model.base.targets)),
        target_names=model.names,
        targets=tuple(Target(t.labels, t.scaling, t.emphasis, t.intervals, t.held) for t in model.targets),
        record=replace(model.record, histories=tuple(map(_history, model.record.histories))),
    )


def _history(history: FitResult) -> FitResult:
    """Return a history without its timings: the same model gives the same file."""
    rows = [{name: value for name, value in row.items() if name != "seconds"} for row in history.history]
    return replace(history, history=rows)


def _table(preprocessor: TablePreprocessor) -> TableState:
    numeric, names = preprocessor.numeric, preprocessor.columns
    return TableState(
        None if names is None else tuple(names),
        numeric.center.numpy(),
        numeric.scale.numpy(),
        numeric.missing.numpy(),
        preprocessor.encoders,
    )


def _options(name: str, network: nn.Module) -> NetworkOptions:
    """Return what builds the network again, including its defaults of today."""
    if isinstance(network, ImageResNet):
        return NetworkOptions(mean=network.mean, std=network.std)  # type: ignore[arg-type]
    signature = inspect.signature(BACKBONES[name]).parameters
    options: dict[str, Any] = {k: p.default for k, p in signature.items() if p.default not in (p.empty, None)}
    for part in network.modules():
        if isinstance(part, PiecewiseLinearEncoding):
            options["edges"] = tuple(map(np.asarray, part.edges))
    return NetworkOptions(**options)


def _tensors(model: Model) -> dict[str, Tensor]:
    """Return the tensors of the networks by name, including buffers that their state leaves out."""
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
    # Copies: safetensors refuses tensors that share memory.
    return {name: value.detach().cpu().contiguous().clone() for name, value in found.items()}


def _smallest(value: Tensor) -> Tensor:
    """Return float64 numbers as float32 where that loses nothing, as for weights that were trained in it."""
    small = value.float()
    return small if value.dtype == torch.float64 and torch.equal(small.double(), value) else value
