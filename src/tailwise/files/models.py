"""Fitted models written to one file and read again, without pickle; see `tailwise.files.archive`.

Everything is checked before anything is built: the model's fields against `ModelState`, and the sizes that it
declares against the shapes of the stored tensors. A file cannot name code to run.
"""

from __future__ import annotations

import copy
import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from tailwise.calibration.intervals import OwnIntervals
from tailwise.files.archive import Key, one_line, pack, unpack
from tailwise.files.base_files import BaseState
from tailwise.files.codec import Arrays, read, write
from tailwise.files.model_state import Backbone, ModelState, NetworkOptions, TableState, Target
from tailwise.labels.bins import checked_labels
from tailwise.lookup import check_name
from tailwise.methods import available_methods
from tailwise.model.base import BASES, Base, FittedBase, GivenBase, NoBase
from tailwise.model.fit import bounds_of_targets
from tailwise.model.inputs import Columns, Inputs, PictureInputs, TableInputs, TensorInputs
from tailwise.model.model import Model, ready
from tailwise.model.settings import Settings
from tailwise.networks.backbones import (
    BACKBONES,
    IMAGE_BACKBONES,
    ImageResNet,
    PiecewiseLinearEncoding,
    make_backbone,
    make_image_backbone,
)
from tailwise.networks.draws import seeded_weights
from tailwise.networks.network import Network
from tailwise.networks.parts import Method
from tailwise.networks.together import Pool, Predictor
from tailwise.tables.column_encoders import AnyColumn, CategoryColumn, DateColumn, TextColumn
from tailwise.training.loop import FitResult

R = TypeVar("R")
OwnBackbone = nn.Module | Callable[[], nn.Module]


# -- save ------------------------------------------------------------------------------------------


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
    arrays: Arrays = {}
    for k, network in enumerate(model.networks):
        for name, value in _tensors(network).items():
            # A copy: safetensors refuses tensors that share memory.
            arrays[f"network.{k}.{name}"] = _smallest(value).detach().cpu().contiguous().clone()
    described = write(ModelState, _state(settings, model), "model", arrays)
    pack(
        path, described, arrays, key=key, check=lambda found, stored: read(ModelState, found, "model", stored)
    )
    return path


def _state(settings: Settings, model: Model) -> ModelState:
    params = settings.get_params(deep=False)
    if isinstance(params["random_state"], np.random.RandomState):
        params["random_state"] = None
    if not isinstance(params["base"], (str, type(None))):
        params["base"] = None  # only another `fit` would use it
    if not isinstance(params["target_transform"], (str, type(None))):
        params["target_transform"] = None
    if all(isinstance(target.intervals, OwnIntervals) for target in model.targets):
        params["conformal"] = None  # as fitted, if the parameter was changed since
    inputs, backbone = model.inputs, params["backbone"]
    first = model.networks[0]
    network, alone = first.backbone, None
    width = cast("int", network.feature_dim)
    if isinstance(backbone, str):
        recipe = _recipe(network)
        alone = _recipe(first.alone.backbone) if isinstance(first, Pool) else None
    else:
        params["backbone"] = None
        recipe = Backbone(None, type(network).__name__, NetworkOptions(), int(settings.feature_dim or width))
    names = getattr(inputs.columns, "feature_names_in_", None)
    return ModelState(
        params=params,
        parts=model.networks[0].method.as_options(),
        backbone=recipe,
        alone=alone,
        n_features_in=getattr(inputs.columns, "n_features_in_", None),
        feature_names_in=None if names is None else tuple(map(str, names)),
        picture_size=inputs.size if isinstance(inputs, PictureInputs) else None,
        table=TableState.of(inputs.encoder) if isinstance(inputs, TableInputs) else None,
        base_given=model.base.given,
        bases=tuple(map(BaseState.of, model.base.targets)),
        rivals=tuple(map(BaseState.of, model.rivals)),
        target_names=model.names,
        targets=tuple(map(Target.of, model.targets)),
        record=replace(model.record, histories=tuple(map(_without_times, model.record.histories))),
    )


def _without_times(history: FitResult) -> FitResult:
    """Return a history without its timings: the same model gives the same file."""
    rows = [{name: value for name, value in row.items() if name != "seconds"} for row in history.history]
    return replace(history, history=rows)


def _recipe(network: Any) -> Backbone:
    """Return what builds a network of ours again, including its defaults of today."""
    return Backbone(network.name, None, _options(network.name, network), network.feature_dim)


def _options(name: str, network: nn.Module) -> NetworkOptions:
    if isinstance(network, ImageResNet):
        return NetworkOptions(mean=network.mean, std=network.std)  # type: ignore[arg-type]
    signature = inspect.signature(BACKBONES[name]).parameters
    options: dict[str, Any] = {k: p.default for k, p in signature.items() if p.default not in (p.empty, None)}
    for part in network.modules():
        if isinstance(part, PiecewiseLinearEncoding):
            options["edges"] = tuple(map(np.asarray, part.edges))
    return NetworkOptions(**options)


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a network by name, including buffers that its state leaves out."""
    tensors: dict[str, Any] = {**dict(network.named_buffers()), **network.state_dict()}
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            raise ValueError(
                f"{name} of the backbone is a {type(value).__name__}, and only tensors are written: "
                "return a tensor from get_extra_state"
            )
    return tensors


def _smallest(value: Tensor) -> Tensor:
    """Return float64 numbers as float32 where that loses nothing, as for weights that were trained in it."""
    small = value.float()
    return small if value.dtype == torch.float64 and torch.equal(small.double(), value) else value


# -- load ------------------------------------------------------------------------------------------


def load(
    path: str | Path,
    *,
    into: Callable[..., R],
    backbone: OwnBackbone | None = None,
    key: Key | None = None,
) -> R:
    """Read a file that `save` wrote and return the fitted estimator, on the CPU.

    `into` is the estimator's class. With `key`, a file that was not signed with it is refused. A file that
    is missing, cut short, damaged, changed, of another kind or of another version is an `OSError` or a
    `ValueError` that says so.
    """
    path = Path(path)
    described, arrays = unpack(path, key)
    params = described.get("params") if isinstance(described, dict) else None
    try:
        state: ModelState = read(ModelState, described, "model", arrays)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} cannot be loaded: {one_line(error)}{_unknown_method(params)}") from error
    own = state.backbone.own
    if own is not None and backbone is None:
        raise ValueError(
            f"{path} was fitted with a backbone of your own ({own:.80}), and only its weights are saved: "
            "pass one of the same shape as backbone=..."
        )
    if own is None and backbone is not None:
        raise ValueError(f"{path} contains its whole network: leave out backbone=...")
    try:
        return _rebuilt(state, arrays, into, backbone)
    except Exception as error:  # a crafted file can provoke any error
        raise ValueError(f"{path} cannot be loaded: {one_line(error)}{_unknown_method(params)}") from error


def _unknown_method(params: Any) -> str:
    name = params.get("method") if isinstance(params, Mapping) else None
    if name in available_methods():
        return ""
    return f"; import the file that registers the method {name!r:.80} first"


def _rebuilt(state: ModelState, arrays: Arrays, into: Callable[..., R], backbone: OwnBackbone | None) -> R:
    params = dict(state.params) if backbone is None else {**state.params, "backbone": backbone}
    estimator: Any = into(**params)
    parts = Method().with_options(**state.parts)
    _check_params(estimator, state, parts)
    inputs, count = _inputs(state), len(state.targets)
    base: Base = GivenBase(count) if state.base_given else NoBase()
    if state.bases:
        base = FittedBase(tuple(bases.base() for bases in state.bases))
    make = partial(_predictor, state, parts, inputs, backbone, offset=not base.is_identity)
    estimator.model_ = Model(
        inputs,
        base,
        tuple(ready(network, table=inputs.is_table) for network in _networks(state, arrays, make, parts)),
        tuple(target.calibration() for target in state.targets),
        state.target_names,
        state.record,
        estimator.device,
        tuple(rival.base() for rival in state.rivals),
    )
    if state.table is not None:
        _try_one_row(estimator, state, state.table)
    return cast("R", estimator)


def _check_params(estimator: Any, state: ModelState, parts: Method) -> None:
    """Raise an error for parameters that could not have been fitted with."""
    if re.fullmatch(r"[A-Za-z][\w+-]{0,80}", estimator.method) is None:
        raise ValueError(f"{estimator.method!r:.80} is not the name of a method")
    parts.with_options(**(estimator.method_options or {}))
    estimator.check_all_but_the_method()
    kinds = state.picture_size is not None, state.table is not None
    if (estimator.takes_pictures, estimator.takes_tables) != kinds:
        raise ValueError(f"backbone={estimator.backbone!r:.80} does not fit the inputs of the model")
    bounds_of_targets(estimator.bounds, [np.array([0.0, 1.0])] * len(state.targets))
    if estimator.base is not None:
        check_name("base", estimator.base, ["auto", *BASES])
    edges = estimator.bins
    if not isinstance(edges, int | None) and (np.diff(checked_labels(edges, "bins")) <= 0).any():
        raise ValueError("the edges of bins must ascend")


def _inputs(state: ModelState) -> Inputs:
    columns = Columns()
    if state.n_features_in is not None:
        columns.n_features_in_ = state.n_features_in
    if state.feature_names_in is not None:
        columns.feature_names_in_ = np.array(state.feature_names_in, dtype=object)
    if state.table is not None:
        groups = state.targets[0].intervals.column
        return TableInputs(groups=groups, preprocessor=state.table.preprocessor(), columns=columns)
    return TensorInputs(columns) if state.picture_size is None else PictureInputs(columns, state.picture_size)


def _networks(
    state: ModelState, arrays: Arrays, make: Callable[[], Predictor], parts: Method
) -> Sequence[Predictor]:
    """Build the networks and fill them with the arrays that are left, which must be theirs."""
    count = len(state.record.histories) // (1 if state.alone is None else 2)
    stored: list[dict[str, Tensor]] = [{} for _ in range(count)]
    for name, value in arrays.items():
        prefix, _, rest = name.partition(".")
        number, _, place = rest.partition(".")
        if prefix != "network" or number not in map(str, range(len(stored))):
            raise ValueError(f"it holds {name!r:.80}, which belongs to no network")
        stored[int(number)][place] = value
    if min(map(len, stored)) < parts.members:
        raise ValueError(f"it declares {parts.members} members, more than it holds")
    if state.backbone.own is None:
        with torch.device("meta"):  # sizes without memory
            declared = make()
        for tensors in stored:
            _check_shapes(declared, tensors)
    networks = [make() for _ in stored]
    for network, tensors in zip(networks, stored, strict=True):
        _check_shapes(network, tensors)
        network.load_state_dict({name: tensors[name] for name in network.state_dict()})
        for name, buffer in network.named_buffers():
            buffer.copy_(tensors[name])
    return networks


def _check_shapes(network: nn.Module, stored: Mapping[str, Tensor]) -> None:
    """Raise an error if a network has other tensors than those stored."""
    declared = _tensors(network)
    for name in [*declared, *stored]:
        shapes = [tuple(each[name].shape) if name in each else None for each in (declared, stored)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"the weights are those of another network: {name:.80} is declared as {shapes[0]}, but "
                f"stored as {shapes[1]}"
            )


def _predictor(
    state: ModelState, parts: Method, inputs: Inputs, backbone: OwnBackbone | None, *, offset: bool
) -> Predictor:
    """Build a network, or two that are pooled, without their weights."""
    network = _network(state, state.backbone, parts, inputs, backbone, offset=offset)
    if state.alone is None:
        return network
    alone = _network(state, state.alone, parts, inputs, None, offset=False)
    return Pool(network, alone, [0.5] * len(state.targets)).eval()


def _network(
    state: ModelState,
    recipe: Backbone,
    parts: Method,
    inputs: Inputs,
    backbone: OwnBackbone | None,
    *,
    offset: bool,
) -> Network:
    """Build the network without its weights; the caller's random state does not change."""
    bins = [target.labels.latent_bins for target in state.targets]
    with seeded_weights(0, everything=not isinstance(inputs, TableInputs)):
        if isinstance(inputs, TableInputs):
            columns = inputs.encoder.out_dim + offset * len(bins)
            network: nn.Module = make_backbone(str(recipe.name), columns, **recipe.options.given)
        elif recipe.name in IMAGE_BACKBONES:
            network = make_image_backbone(recipe.name, **recipe.options.given)
        else:
            assert backbone is not None
            network = copy.deepcopy(backbone) if isinstance(backbone, nn.Module) else backbone()
        # The saved parts, even if the method of that name has changed since.
        whole = Network(network, recipe.feature_dim, bins if len(bins) > 1 else bins[0], parts, offset=offset)
    return whole.eval()


def _try_one_row(estimator: Any, state: ModelState, table: TableState) -> None:
    """Raise an error unless the model predicts a made-up row: its parts must fit one another."""
    import pandas as pd

    row: Any = np.zeros((1, table.center.size))
    if table.names is not None:
        row = pd.DataFrame(row, columns=list(table.names)) if not table.columns else _made_up(table.columns)
    given = np.zeros((1, len(state.targets)) if len(state.targets) > 1 else 1) if state.base_given else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prediction = estimator.predict(row, base_prediction=given)
        estimator.predict_interval(row, base_prediction=given)
    if not np.isfinite(prediction).all():
        raise ValueError("its predictions are not finite")


def _made_up(columns: Sequence[AnyColumn]) -> Any:
    """Return a row with a value of each column's kind."""
    import pandas as pd

    cells: dict[str, Any] = {}
    for column in columns:
        cells[column.name] = 0.0
        if isinstance(column, TextColumn):
            cells[column.name] = "text"
        elif isinstance(column, CategoryColumn):
            cells[column.name] = column.values[0]
        elif isinstance(column, DateColumn):
            cells[column.name] = pd.Timestamp("2024-01-31", tz=column.zone)
    return pd.DataFrame({name: [cell] for name, cell in cells.items()})
