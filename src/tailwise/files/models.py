"""Fitted models written to one file and read again, without pickle.

Everything is checked before anything is built: the fields against their annotations, what must agree with
another field in `__post_init__`, and the sizes of networks against the shapes of the stored tensors. `save`
reads what it writes, so that it refuses what could not be loaded. A file cannot name code to run.
"""

from __future__ import annotations

import copy
import json
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tailwise.calibration.calibration import Calibration, HeldOut, Labels, Prior
from tailwise.calibration.intervals import ConformalIntervals, Intervals, OwnIntervals
from tailwise.calibration.scaling import Scaling
from tailwise.files.archive import Key, pack, unpack
from tailwise.files.bases import BaseState, one_line
from tailwise.files.codec import Arrays, decoded, encoded, smallest
from tailwise.labels.bins import Array, checked_labels, checked_weights
from tailwise.lookup import check_name
from tailwise.methods import available_methods
from tailwise.model.base import BASES, Base
from tailwise.model.fit import bounds_of_targets
from tailwise.model.inputs import Columns, Inputs, PictureInputs, TableInputs, TensorInputs
from tailwise.model.model import Model, Record, ready
from tailwise.model.settings import Settings
from tailwise.networks.backbones import PiecewiseLinearEncoding, make_backbone
from tailwise.networks.draws import seeded_weights
from tailwise.networks.images import make_image_backbone
from tailwise.networks.network import Network
from tailwise.networks.parts import Method
from tailwise.networks.together import Pool, Predictor
from tailwise.options import Between, Count, Fraction, Items
from tailwise.tables.column_encoders import NumberColumn
from tailwise.tables.encode import TablePreprocessor
from tailwise.training.loop import FitResult

R = TypeVar("R")
OwnBackbone = nn.Module | Callable[[], nn.Module]
MAX_NETWORKS = 1000
MAX_WIDTH = 1 << 16
"""Largest size of a layer, and of pictures."""
Width = Annotated[int, Between(1, MAX_WIDTH)]


# -- what a file holds -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """How the predictions of one target are calibrated."""

    labels: Labels
    scaling: Scaling
    emphasis: Fraction
    intervals: Intervals
    held: HeldOut

    def __post_init__(self) -> None:
        bins, held, intervals, quantiles = self.labels.bins, self.held, self.intervals, self.labels.quantiles
        _check_edges(bins.edges, bins.counts)
        if quantiles.ndim != 1 or quantiles.size == 0 or (np.diff(quantiles) < 0).any():
            raise ValueError("the quantiles of the labels must ascend")
        if (bins.counts < 0).any() or not bins.counts.any():
            raise ValueError("bins need labels")
        if isinstance(intervals, ConformalIntervals):
            _check_edges(intervals.bins.edges, intervals.bins.counts)
            if not (intervals.scores >= 0).all():
                raise ValueError("scores of intervals are distances")
            for weights in (intervals.weights, intervals.rare):
                checked_weights(weights, held.labels.size)
        rows, groups = held.labels.shape, len(intervals.column.names)
        if len(rows) != 1 or not rows == held.prediction.shape == held.groups.shape:
            raise ValueError("the held-out predictions do not fit their labels")
        if ((held.groups < 0) | (held.groups > groups)).any():
            raise ValueError("the held-out rows do not fit the groups of their column")

    @classmethod
    def of(cls, fitted: Calibration) -> Target:
        """Take a calibration apart."""
        return cls(fitted.labels, fitted.scaling, fitted.emphasis, fitted.intervals, fitted.held)

    def calibration(self) -> Calibration:
        """Build the calibration again."""
        intervals = self.intervals
        if isinstance(intervals, ConformalIntervals):
            intervals = replace(intervals, bins=self.labels.bins)
        prior = Prior.emphasized(self.labels.density, self.emphasis)
        return Calibration(self.labels, self.scaling, prior, intervals, self.held)


def _check_edges(edges: NDArray[Any], counts: NDArray[Any]) -> None:
    if edges.ndim != 1 or counts.shape != (edges.size - 1,) or not (np.diff(edges) > 0).all():
        raise ValueError("bins need edges in ascending order and one count between each two")


@dataclass(frozen=True)
class Backbone:
    """A network of ours without its weights."""

    name: str
    edges: Annotated[tuple[Annotated[Array, Items(2, MAX_WIDTH)], ...], Items(0, MAX_WIDTH)]
    """Edges of the bins of each number, for networks that have such bins."""


@dataclass(frozen=True, kw_only=True)
class ModelState:
    """A fitted `TailRegressor`, but for the weights of its networks."""

    params: dict[str, Any]
    """The estimator checks them."""
    parts: dict[str, Any]
    """Options of `Method`, which checks them."""
    own: str | None
    """The class of a backbone of the user's own."""
    backbones: Annotated[tuple[Backbone, ...], Items(0, 2)]
    """Of ours: one, or one around a base and one on its own, which are pooled."""
    n_features_in: Count | None
    feature_names_in: tuple[str, ...] | None
    picture_size: tuple[Width, Width] | None
    table: TablePreprocessor | None
    base_given: bool
    bases: tuple[BaseState, ...]
    rivals: tuple[BaseState, ...]
    target_names: tuple[str, ...] | None
    targets: Annotated[tuple[Target, ...], Items(1, MAX_NETWORKS)]
    record: Record

    def __post_init__(self) -> None:
        count = len(self.targets)
        kinds = (self.table is not None, self.picture_size is not None, self.own is not None)
        if sum(kinds) != 1 or (self.own is None) != bool(self.backbones):
            raise ValueError("inputs must be a table, pictures, or those of a backbone of your own")
        if self.pooled and (len(self.record.histories) % 2 or not (self.bases or self.base_given)):
            raise ValueError("networks without a base are pooled with as many around one")
        if not 1 <= len(self.record.histories) <= MAX_NETWORKS:
            raise ValueError(f"there must be 1 to {MAX_NETWORKS} networks, each with a history")
        sizes = {"names": self.target_names, "bases": self.bases or None, "rivals": self.rivals or None}
        for name, values in sizes.items():
            if values is not None and len(values) != count:
                raise ValueError(f"{len(values)} {name} for {count} targets")
        if self.feature_names_in is not None and len(self.feature_names_in) != self.n_features_in:
            raise ValueError(f"{len(self.feature_names_in)} names for {self.n_features_in} features")
        wanted = OwnIntervals if self.params.get("conformal") is None else ConformalIntervals
        if not all(isinstance(target.intervals, wanted) for target in self.targets):
            raise ValueError(f"the intervals are not those of conformal={self.params.get('conformal')!r:.40}")
        width = None if self.table is None else len(self.table.numeric.center)
        for model in (model for base in (*self.bases, *self.rivals) for model in base.models):
            if model.features != width or (self.base_given and self.bases):
                raise ValueError(f"a base for {model.features} columns does not fit the inputs")

    @property
    def pooled(self) -> bool:
        """Whether networks around a base are pooled with networks on their own."""
        return len(self.backbones) > 1


# -- save ------------------------------------------------------------------------------------------


def save(
    settings: Settings, model: Model, path: str | Path, *, overwrite: bool = False, key: Key | None = None
) -> Path:
    """Write a fitted `TailRegressor` to one file and return its path; `load` gives the same predictions.

    A file that exists is an error unless `overwrite`. With `key` the file is signed. For a backbone of your
    own, only the weights are written. A `random_state` that is a generator becomes None, because only another
    `fit` would use it. A base that no file can hold is an error; see `tailwise.files.bases.CAN`.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name a file, such as {path / 'model.tailwise'}")
    if path.exists() and not overwrite:
        raise ValueError(f"{path} exists already: pass overwrite=True to replace it, or name another file")
    tensors: Arrays = {}
    for k, network in enumerate(model.networks):
        for name, value in _tensors(network).items():
            # Weights that were trained in float32 are so again.
            kinds = [torch.float32] if value.dtype == torch.float64 else []
            tensors[f"network.{k}.{name}"] = smallest(value.detach().cpu(), kinds)
    content = encoded(_state(settings, model), tensors)
    try:
        decoded(ModelState, content)
    except ValueError as error:
        raise ValueError(f"the model cannot be saved: {error}") from None
    pack(path, content, key)
    return path


def _state(settings: Settings, model: Model) -> ModelState:
    params = settings.get_params(deep=False)
    if isinstance(params["random_state"], np.random.RandomState):
        params["random_state"] = None
    for name in ("base", "target_transform", "backbone"):  # only another `fit` would use the first two
        params[name] = params[name] if isinstance(params[name], str) else None
    if all(isinstance(target.intervals, OwnIntervals) for target in model.targets):
        params["conformal"] = None  # as fitted, if the parameter was changed since
    inputs, first = model.inputs, model.networks[0]
    own = None if isinstance(settings.backbone, str) else type(first.backbone).__name__
    networks = [first.backbone, first.alone.backbone] if isinstance(first, Pool) else [first.backbone]
    names = getattr(inputs.columns, "feature_names_in_", None)
    return ModelState(
        params=json.loads(json.dumps(params, default=lambda array: np.asarray(array).tolist())),
        parts=first.method.as_options(),
        own=own,
        backbones=() if own else tuple(Backbone(str(n.name), _edges(n)) for n in networks),
        n_features_in=getattr(inputs.columns, "n_features_in_", None),
        feature_names_in=None if names is None else tuple(map(str, names)),
        picture_size=inputs.size if isinstance(inputs, PictureInputs) else None,
        table=inputs.encoder if isinstance(inputs, TableInputs) else None,
        base_given=bool(model.base.given),
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


def _edges(network: nn.Module) -> tuple[Array, ...]:
    parts = [part for part in network.modules() if isinstance(part, PiecewiseLinearEncoding)]
    return tuple(np.asarray(edges) for part in parts for edges in part.edges)


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


# -- load ------------------------------------------------------------------------------------------


def load(
    path: str | Path, *, into: Callable[..., R], backbone: OwnBackbone | None = None, key: Key | None = None
) -> R:
    """Read a file that `save` wrote and return the fitted estimator, on the CPU.

    `into` is the estimator's class. With `key`, a file that was not signed with it is refused. A file that
    is missing, cut short, damaged, changed, of another kind or of another version is an `OSError` or a
    `ValueError` that says so.
    """
    content, method = unpack(Path(path), key), None
    try:
        state, tensors = decoded(ModelState, content)
        method = state.params.get("method")
        if state.own is not None and backbone is None:
            raise ValueError(
                f"it was fitted with a backbone of your own ({state.own:.80}), and only its weights are "
                "saved: pass one of the same shape as backbone=..."
            )
        if state.own is None and backbone is not None:
            raise ValueError("it contains its whole network: leave out backbone=...")
        return _rebuilt(state, tensors, into, backbone)
    except Exception as error:  # a crafted file can provoke any error
        hint = f"; run the plugin that registers the method {method!r:.80} first"
        known = method is None or method in available_methods()
        raise ValueError(f"{path} cannot be loaded: {one_line(error)}{'' if known else hint}") from error


def _rebuilt(state: ModelState, tensors: Arrays, into: Callable[..., R], backbone: OwnBackbone | None) -> R:
    estimator: Any = into(**state.params if backbone is None else {**state.params, "backbone": backbone})
    parts = Method().with_options(**state.parts)  # as saved, even if the method of that name has changed
    _check_params(estimator, state, parts)
    inputs = _inputs(state)
    base = Base(tuple(base.base() for base in state.bases), len(state.targets) if state.base_given else 0)
    make = partial(_predictor, estimator, state, parts, inputs, offset=not base.is_identity)
    estimator.model_ = Model(
        inputs,
        base,
        tuple(ready(n, table=inputs.is_table) for n in _networks(state, tensors, make, parts.members)),
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
        return TableInputs(groups=groups, preprocessor=state.table, columns=columns)
    return TensorInputs(columns) if state.picture_size is None else PictureInputs(columns, state.picture_size)


def _networks(
    state: ModelState, tensors: Arrays, make: Callable[[], Predictor], members: int
) -> Sequence[Predictor]:
    """Build the networks and fill them with the tensors, which must be theirs."""
    stored: list[Arrays] = [{} for _ in range(len(state.record.histories) // (1 + state.pooled))]
    for name, value in tensors.items():
        prefix, _, rest = name.partition(".")
        number, _, place = rest.partition(".")
        if prefix != "network" or number not in map(str, range(len(stored))):
            raise ValueError(f"it holds {name!r:.80}, which belongs to no network")
        stored[int(number)][place] = value
    if min(map(len, stored)) < members:
        raise ValueError(f"it declares {members} members, more than it holds")
    if state.own is None:
        with torch.device("meta"):  # sizes without memory
            declared = make()
        for each in stored:
            _check_shapes(declared, each)
    networks = [make() for _ in stored]
    for network, each in zip(networks, stored, strict=True):
        _check_shapes(network, each)
        network.load_state_dict({name: each[name] for name in network.state_dict()})
        for name, buffer in network.named_buffers():
            buffer.copy_(each[name])
    return networks


def _check_shapes(network: nn.Module, stored: Arrays) -> None:
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
    settings: Settings, state: ModelState, parts: Method, inputs: Inputs, *, offset: bool
) -> Predictor:
    """Build a network, or two that are pooled, without the weights; the caller's random state stays."""
    bins = [target.labels.latent_bins for target in state.targets]
    networks: list[Network] = []
    with seeded_weights(0):
        for recipe in state.backbones or (None,):
            around = offset and not networks
            backbone = _backbone(settings, inputs, recipe, around * len(bins))
            dim = settings.feature_dim or backbone.feature_dim
            if dim > MAX_WIDTH:
                raise ValueError(f"{dim} features are too many")
            labels = bins if len(bins) > 1 else bins[0]
            networks.append(Network(backbone, dim, labels, parts, offset=around).eval())
    return Pool(networks[0], networks[1], [0.5] * len(bins)).eval() if state.pooled else networks[0]


def _backbone(settings: Settings, inputs: Inputs, recipe: Backbone | None, offsets: int) -> Any:
    if recipe is None:
        own: Any = settings.backbone
        return copy.deepcopy(own) if isinstance(own, nn.Module) else own()
    if isinstance(inputs, TableInputs):
        edges = {"edges": recipe.edges} if recipe.edges else {}
        return make_backbone(recipe.name, inputs.encoder.out_dim + offsets, **edges)
    return make_image_backbone(recipe.name)


def _try_one_row(estimator: Any, state: ModelState, table: TablePreprocessor) -> None:
    """Raise an error unless the model predicts a made-up row: its parts must fit one another."""
    import pandas as pd

    words = {column.name for column in table.encoders if not isinstance(column, NumberColumn)}
    row: Any = np.zeros((1, len(table.numeric.center)))
    if table.columns is not None:
        row = pd.DataFrame({name: [None if name in words else 0.0] for name in table.columns})
    count = len(state.targets)
    given = np.zeros((1, count) if count > 1 else 1) if state.base_given else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prediction = estimator.predict(row, base_prediction=given)
        estimator.predict_interval(row, base_prediction=given)
    if not np.isfinite(prediction).all():
        raise ValueError("its predictions are not finite")
