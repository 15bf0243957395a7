"""Fitted models read from a file that `tailwise.files.saving` wrote.

Everything is checked before anything is built: the model's fields against `ModelState`, and the sizes that it
declares against the shapes of the stored tensors. A file cannot name code to run.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from tailwise.calibration.calibration import Calibration, Prior
from tailwise.calibration.intervals import ConformalIntervals
from tailwise.files.archive import Key, one_line, unpack
from tailwise.files.base_files import base_of
from tailwise.files.codec import Arrays, read
from tailwise.files.model_state import ModelState, TableState, Target
from tailwise.labels.bins import LabelBins, checked_labels
from tailwise.lookup import check_name
from tailwise.methods import available_methods
from tailwise.model.base import BASES, Base, FittedBase, GivenBase, NoBase
from tailwise.model.fit import bounds_of_targets
from tailwise.model.inputs import Columns, Inputs, PictureInputs, TableInputs, TensorInputs
from tailwise.model.model import Model, ready
from tailwise.networks.backbones import IMAGE_BACKBONES, make_backbone, make_image_backbone
from tailwise.networks.draws import seeded_weights
from tailwise.networks.network import Network
from tailwise.networks.parts import Method
from tailwise.tables.column_encoders import AnyColumn, CategoryColumn, DateColumn, TextColumn
from tailwise.tables.encode import NumericEncoder, TablePreprocessor

R = TypeVar("R")
OwnBackbone = nn.Module | Callable[[], nn.Module]


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
    try:
        state: ModelState = read(ModelState, described, "model", arrays)
    except ValueError as error:
        method = described.get("params") if isinstance(described, dict) else None
        raise ValueError(f"{path} cannot be loaded: {one_line(error)}{_unknown(method)}") from error
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
        raise ValueError(f"{path} cannot be loaded: {one_line(error)}{_unknown(state.params)}") from error


def _unknown(params: Any) -> str:
    name = params.get("method") if isinstance(params, Mapping) else None
    if name in available_methods():
        return ""
    return f"; import the file that registers the method {name!r:.80} first"


def _rebuilt(state: ModelState, arrays: Arrays, into: Callable[..., R], backbone: OwnBackbone | None) -> R:
    params = dict(state.params)
    if backbone is not None:
        params["backbone"] = backbone
    estimator: Any = into(**params)
    parts = Method().with_options(**state.parts)
    _check_params(estimator, state, parts)
    targets, inputs = tuple(map(_calibration, state.targets)), _inputs(state)
    all_bins = [target.labels.bins for target in state.targets]
    bins = all_bins if len(targets) > 1 else all_bins[0]
    base: Base = GivenBase(len(targets)) if state.base_given else NoBase()
    if state.bases:
        base = FittedBase(tuple(map(base_of, state.bases)))
    offset = base.given or bool(base.targets)
    in_dim = None
    if isinstance(inputs, TableInputs):
        in_dim = inputs.encoder.out_dim + (len(all_bins) if offset else 0)
    make = partial(_network, state, parts, bins, in_dim, backbone, offset=offset)
    networks = _networks(state, arrays, make, parts.members)
    estimator.model_ = Model(
        inputs,
        base,
        tuple(ready(network, table=inputs.is_table) for network in networks),
        targets,
        state.target_names,
        state.record,
        estimator.device,
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
    if (estimator.takes_pictures, estimator.takes_tables) != (
        state.picture_size is not None,
        state.table is not None,
    ):
        raise ValueError(f"backbone={estimator.backbone!r:.80} does not fit the inputs of the model")
    bounds_of_targets(estimator.bounds, [np.array([0.0, 1.0])] * len(state.targets))
    if estimator.base is not None:
        check_name("base", estimator.base, ["auto", *BASES])
    if np.ndim(estimator.bins) > 0 and (np.diff(checked_labels(estimator.bins, "bins")) <= 0).any():
        raise ValueError("the edges of bins must ascend")


# -- parts -----------------------------------------------------------------------------------------


def _preprocessor(state: TableState) -> TablePreprocessor:
    names = None if state.names is None else list(state.names)
    numeric = NumericEncoder(*map(torch.from_numpy, (state.center, state.scale, state.missing)))
    return TablePreprocessor(names, numeric, state.columns)


def _inputs(state: ModelState) -> Inputs:
    columns = Columns()
    if state.n_features_in is not None:
        columns.n_features_in_ = state.n_features_in
    if state.feature_names_in is not None:
        columns.feature_names_in_ = np.array(state.feature_names_in, dtype=object)
    if state.table is not None:
        groups = state.targets[0].intervals.column
        return TableInputs(groups=groups, preprocessor=_preprocessor(state.table), columns=columns)
    return TensorInputs(columns) if state.picture_size is None else PictureInputs(state.picture_size, columns)


def _calibration(state: Target) -> Calibration:
    labels, intervals = state.labels, state.intervals
    if isinstance(intervals, ConformalIntervals):
        intervals = replace(intervals, bins=labels.bins)
    prior = Prior.emphasized(labels.density, state.emphasis)
    return Calibration(labels, state.scaling, prior, intervals, state.held)


# -- networks --------------------------------------------------------------------------------------


class _Stored(NamedTuple):
    """The tensors of one network: its weights, and buffers that its state leaves out."""

    weights: dict[str, Tensor]
    buffers: dict[str, Tensor]


def _networks(state: ModelState, arrays: Arrays, make: Callable[[], Network], members: int) -> list[Network]:
    stored = [
        _Stored(*(_below(arrays, f"{kind}.{k}.") for kind in ("network", "buffer")))
        for k in range(len(state.record.histories))
    ]
    if arrays:
        raise ValueError(f"it holds {next(iter(arrays))!r:.80}, which belongs to no network")
    for each in stored:
        if len(each.weights) < members:
            raise ValueError(f"it declares {members} members, more than it holds")
    if state.backbone.own is None:
        with torch.device("meta"):  # sizes without memory
            declared = make()
        for each in stored:
            _check_shapes(declared, each)
    networks = []
    for each in stored:
        network = make()
        _fill(network, each)
        networks.append(network)
    return networks


def _below(arrays: Arrays, prefix: str) -> dict[str, Tensor]:
    """Take the tensors whose names begin with a prefix."""
    return {name.removeprefix(prefix): arrays.pop(name) for name in list(arrays) if name.startswith(prefix)}


def _check_shapes(declared: Network, stored: _Stored) -> None:
    """Raise an error if the network that a file declares has other tensors than those stored."""
    state = declared.state_dict()
    hidden = {name: value for name, value in declared.named_buffers() if name not in state}
    for wanted, found in ((state, stored.weights), (hidden, stored.buffers)):
        for name in [*wanted, *found]:
            shapes = [tuple(each[name].shape) if name in each else None for each in (wanted, found)]
            if shapes[0] != shapes[1]:
                raise ValueError(
                    f"the weights are those of another network: {name} is declared as {shapes[0]}, but "
                    f"stored as {shapes[1]}"
                )


def _network(
    state: ModelState,
    parts: Method,
    bins: LabelBins | Sequence[LabelBins],
    in_dim: int | None,
    backbone: OwnBackbone | None,
    *,
    offset: bool,
) -> Network:
    """Build the network without its weights; the caller's random state does not change."""
    recipe, own = state.backbone, backbone is not None
    with seeded_weights(0, everything=own or recipe.name in IMAGE_BACKBONES):
        if recipe.name in IMAGE_BACKBONES:
            network: nn.Module = make_image_backbone(recipe.name, **recipe.options.given)
        elif backbone is None:
            assert in_dim is not None and recipe.name is not None
            network = make_backbone(recipe.name, in_dim, **recipe.options.given)
        else:
            network = copy.deepcopy(backbone if isinstance(backbone, nn.Module) else backbone())
        # The saved parts, even if the method of that name has changed since.
        model = Network(network, recipe.feature_dim, bins, parts, offset=offset)
    return model.eval()


def _fill(model: Network, stored: _Stored) -> None:
    buffers = stored.buffers
    try:
        model.load_state_dict(stored.weights)
    except RuntimeError as error:
        raise ValueError(f"the weights are those of another network: {one_line(error)}") from error
    state = model.state_dict()
    hidden = {name: value for name, value in model.named_buffers() if name not in state}
    if any(name not in hidden or hidden[name].shape != buffers[name].shape for name in buffers):
        raise ValueError("the buffers are those of another network")
    for name, value in buffers.items():
        hidden[name].copy_(value)


# -- a trial ---------------------------------------------------------------------------------------


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
