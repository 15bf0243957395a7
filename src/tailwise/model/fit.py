"""From labelled rows to a fitted model."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_consistent_length
from torch import nn

from tailwise.calibration.calibration import Calibration, CalibrationRecipe, Labels, calibrate
from tailwise.distributions.members import Distribution, concatenate
from tailwise.distributions.truncation import Bounds, bounds_of
from tailwise.labels.bins import LabelBins
from tailwise.labels.support import LabelSupport
from tailwise.methods import build_model
from tailwise.model.base import GivenBase, fit_base, given_predictions
from tailwise.model.inputs import Encoded, Inputs, column_of
from tailwise.model.model import (
    Model,
    Record,
    beside_features,
    network_prediction,
    of_target,
    ready,
    squeezed,
)
from tailwise.model.pictures import augmentation
from tailwise.model.settings import DEFAULT_BACKBONE, Settings
from tailwise.model.split import MIN_HOLDOUT, Split, check_row_count, group_codes, latest_rows
from tailwise.networks.backbones import make_backbone, make_image_backbone
from tailwise.networks.draws import seeded_weights
from tailwise.networks.heads import HEADS
from tailwise.networks.network import Network
from tailwise.resampling.smogn import resampled
from tailwise.tables.check import checked_eval_set, checked_targets, target_names
from tailwise.tables.equal_rows import merge_equal_rows
from tailwise.tables.inputs import row_count, take_rows
from tailwise.tables.split import halves
from tailwise.training.loop import FitResult, TensorData, one_thread
from tailwise.training.loop import fit as train
from tailwise.training.progress import visible

logger = logging.getLogger(__name__)
Floats = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rows:
    """Labelled rows."""

    X: Any
    y: Floats
    """(N, T)"""
    weight: Floats
    """(N,)"""
    base: Floats | None = None
    """Predictions of a base of the user's own. (N, T)"""
    groups: Index | None = None
    """Numbers of the groups of rows that must not be split. (N,)"""

    def rows(self, rows: Index) -> Rows:
        """Return some of the rows, in that order. rows: (M,)"""
        X = self.X if np.array_equal(rows, np.arange(len(self.y))) else take_rows(self.X, rows)
        base = None if self.base is None else self.base[rows]
        return Rows(
            X, self.y[rows], self.weight[rows], base, None if self.groups is None else self.groups[rows]
        )

    def merged(self, sample_weight: ArrayLike | None) -> Rows:
        """Return the rows with equal ones merged into one of a larger weight."""
        told_apart = [part for part in (self.y, self.base, self.groups) if part is not None]
        rows, weight = merge_equal_rows(self.X, np.column_stack(told_apart).astype(np.float64), sample_weight)
        return replace(self.rows(rows), weight=weight)


@dataclass(frozen=True, eq=False)
class Examples:
    """Labelled rows as a network takes them."""

    x: Any
    """Inputs of the network; of tables with the base predictions beside the features."""
    y: Floats
    """(N, T)"""
    weight: Floats
    """(N,)"""
    offset: Floats | None
    """Base predictions. (N, T)"""
    groups: Index
    """Codes in the column that intervals go by. (N,)"""

    @classmethod
    def of(
        cls,
        rows: Encoded,
        y: Floats,
        weight: Floats,
        offset: Floats | None,
        bins: Sequence[LabelBins],
        *,
        table: bool,
    ) -> Examples:
        """Put labels and base predictions beside encoded rows."""
        x = beside_features(rows.x, offset, bins) if table else rows.x
        return cls(x, y, weight, offset, rows.groups)

    def rows(self, rows: Index) -> Examples:
        """Return some of the rows. rows: (M,)"""
        offset = None if self.offset is None else self.offset[rows]
        return Examples(take_rows(self.x, rows), self.y[rows], self.weight[rows], offset, self.groups[rows])

    def tensors(self, *, weighted: bool = True) -> TensorData:
        """Return what the training loop takes; weights have a mean of 1."""
        weight = None
        if weighted and not (self.weight == self.weight[0]).all():
            weight = torch.from_numpy(self.weight / self.weight.mean()).float()
        offset = None if self.offset is None else torch.tensor(squeezed(self.offset))
        # A copy: the labels may be read-only.
        return TensorData(self.x, torch.tensor(squeezed(self.y)), weight, offset=offset)


@dataclass(frozen=True, eq=False)
class Held:
    """Held-out rows with the predictions of networks that were not trained on them."""

    raw: Distribution
    """Before calibration. (n,) or (n, T)"""
    examples: Examples
    select: Index
    """Rows that may choose: stopping, scaling, emphasis."""
    confirm: Index
    """Rows that nothing has used so far, if there are enough."""

    def calibrations(self, labels: Sequence[Labels], recipe: CalibrationRecipe) -> tuple[Calibration, ...]:
        """Return the calibration of each target."""
        y, offset = self.examples.y, self.examples.offset
        return tuple(
            calibrate(
                of_target(self.raw, t, y.shape[1] > 1),
                y[:, t],
                self.examples.groups,
                own,
                recipe,
                self.select,
                self.confirm,
                None if offset is None else offset[:, t],
            )
            for t, own in enumerate(labels)
        )


def fit(
    settings: Settings,
    X: Any,
    y: Any,
    sample_weight: ArrayLike | None = None,
    eval_set: tuple[Any, Any] | None = None,
    checkpoint: str | Path | None = None,
    *,
    base_prediction: ArrayLike | None = None,
    groups: ArrayLike | str | None = None,
    time: ArrayLike | str | None = None,
    start: Model | None = None,
) -> Model:
    """Train, calibrate and return a model; the arguments are those of `TailRegressor.fit`."""
    settings.check()
    group_of, time_of = column_of(X, groups, "groups"), column_of(X, time, "time")
    inputs, X = settings.inputs().see(X)
    labels, names = checked_labels(X, y), target_names(y)
    check_row_count(len(labels))
    bounds, supports = label_bounds(settings.bounds, labels), label_supports(settings, labels)
    given = None if base_prediction is None else _given(base_prediction, labels.shape)
    make_base = settings.base_maker(len(labels), given=given is not None)
    watched = None if eval_set is None else _watched(inputs, eval_set, labels.shape[1], given is not None)
    codes = None if group_of is None else group_codes(group_of, len(labels))
    rows = Rows(X, labels, np.ones(len(labels)), given, codes)
    if time_of is not None:
        if eval_set is not None or given is not None:
            raise ValueError("time cannot be used with eval_set or base_prediction: leave one out")
        early, late = latest_rows(time_of, len(labels), settings.validation_fraction)
        watched = rows.rows(late)
        sample_weight = _check_sample_weight(sample_weight, labels)[early]
        rows = rows.rows(early)
    seed = int(check_random_state(settings.random_state).randint(2**31 - 1))
    rows = rows.merged(sample_weight)

    split = Split.deal(
        rows.y[:, 0],
        seed,
        folds=1 if settings.folds == "auto" and settings.takes_pictures else settings.folds,
        share=settings.validation_fraction,
        groups=rows.groups,
        alone=watched is not None,
    )
    trained = split.trained
    if start is None:
        bins = label_bins(settings, rows.y[trained], rows.weight[trained])
        inputs = inputs.fit(take_rows(rows.X, trained))
        encoded = inputs.encode(rows.X)
        if make_base is not None:
            settings.log("fitting the base to %d rows", len(rows.y))
        base, offset = fit_base(make_base, encoded.matrix, rows.y, rows.weight, split.fold, seed)
        if given is not None:
            base, offset = GivenBase(labels.shape[1]), rows.base
    else:
        _check_start(start, inputs, labels.shape[1])
        bins, base = start.bins, start.base
        inputs = replace(start.table, groups=inputs.groups)
        encoded = inputs.encode(rows.X)
        offset = base.offset(encoded.matrix, len(encoded), None if rows.base is None else squeezed(rows.base))
    table = inputs.is_table
    data = Examples.of(encoded, rows.y, rows.weight, offset, bins, table=table)
    valid = None
    if watched is not None:
        seen = inputs.encode(watched.X)
        valid = Examples.of(
            seen, watched.y, watched.weight, base.offset(seen.matrix, len(seen), None), bins, table=table
        )
    runs = _Runs(settings, bins, has_offset=offset is not None, table=table, seed=seed)
    networks, histories, held = runs.train(
        data, split, valid, checkpoint, () if start is None else start.networks
    )
    held_out = watched is not None or split.held_out
    recipe = calibration_recipe(settings, networks, inputs, held_out=held_out)
    each = zip(bins, bounds, supports, strict=True)
    known = [Labels(b, ends, values, settings.many, settings.few) for b, ends, values in each]
    unseen = held_out and len(networks) == 1 and len(held.confirm) < len(held.examples.y)
    with computing(table=table):
        targets = held.calibrations(known, recipe)
    return Model(
        inputs,
        base,
        networks,
        targets,
        None if names is None else tuple(names),
        Record(histories, held_out, unseen),
        settings.device,
    )


@dataclass(frozen=True)
class _Runs:
    """Trains a network for each part of a split."""

    settings: Settings
    bins: list[LabelBins]
    has_offset: bool
    table: bool
    seed: int

    def train(
        self,
        data: Examples,
        split: Split,
        watched: Examples | None,
        checkpoint: str | Path | None,
        start: Sequence[Network],
    ) -> tuple[tuple[Network, ...], tuple[FitResult, ...], Held]:
        """Return the networks, their histories, and their predictions of held-out rows."""
        settings, seed, several_parts = self.settings, self.seed, len(split.parts) > 1
        networks, histories, predictions = [], [], []
        change = augmentation(settings.augment) if settings.takes_pictures else None
        with visible() if settings.verbose else nullcontext():
            for k, (own, rest) in enumerate(split.parts):
                valid = watched if watched is not None else data.rows(rest)
                select = confirm = np.arange(len(valid.y))
                if not several_parts:
                    select, confirm = halves(len(valid.y), seed, 4 * MIN_HOLDOUT)
                if settings.verbose and several_parts:
                    logger.info("network %d of %d", k + 1, len(split.parts))
                if start:
                    network = copy.deepcopy(start[k % len(start)]).float()
                else:
                    network = build_network(
                        settings, data.x, split.trained, self.bins, seed + k, offset=self.has_offset
                    )
                training = self._resampled(network, data.rows(own)).tensors()
                histories.append(
                    train(
                        network,
                        replace(training, transform=change),
                        valid.rows(select).tensors(weighted=False),
                        settings.train_config(len(own), seed + k),
                        checkpoint=None if checkpoint is None else _numbered(Path(checkpoint), k),
                        progress=None if settings.verbose else False,
                    )
                )
                networks.append(ready(network, table=self.table))
                with computing(table=self.table):
                    predictions.append(
                        network_prediction(
                            networks[k], valid.x, valid.offset, table=self.table, device=settings.device
                        )
                    )
        if several_parts:
            order = np.concatenate([rest for _, rest in split.parts])
            held = Held(
                concatenate(predictions), data.rows(order), np.arange(len(order)), np.arange(len(order))
            )
        else:
            held = Held(predictions[0], valid, select, confirm)
        return tuple(networks), tuple(histories), held

    def _resampled(self, network: Network, data: Examples) -> Examples:
        """Training rows, resampled if the method asks for it."""
        name = network.method.resampling
        if name is None:
            return data
        if not self.table or data.y.shape[1] > 1:
            raise ValueError(
                f"method {self.settings.method!r} makes new rows between those of a table, for one target: "
                "choose another one for pictures, a backbone of your own or several targets"
            )
        x, y = resampled(name, data.x, data.y[:, 0], data.weight, self.seed)
        return Examples(x, y[:, None], np.ones(len(y)), None, np.zeros(len(y), np.int64))


def _numbered(path: Path, k: int) -> Path:
    return path if k == 0 else path.with_name(f"{path.name}.{k}")


def computing(*, table: bool) -> AbstractContextManager[None]:
    """For tables, compute on one thread: what several threads compute depends on their number."""
    return one_thread() if table else nullcontext()


def build_network(
    settings: Settings, x: Any, trained: Index, bins: Sequence[LabelBins], seed: int, *, offset: bool
) -> Network:
    """Return an untrained network for inputs such as x, of which it may read the trained rows.

    The seed decides its weights.
    """
    with seeded_weights(seed, everything=not settings.takes_tables):
        return _built(settings, x, trained, bins, offset)


def _built(settings: Settings, x: Any, trained: Index, bins: Sequence[LabelBins], offset: bool) -> Network:
    if settings.takes_pictures:
        network: nn.Module = make_image_backbone(str(settings.backbone))
    elif isinstance(settings.backbone, str):
        name = DEFAULT_BACKBONE if settings.backbone == "auto" else settings.backbone
        network = make_backbone(name, x.shape[1], rows=take_rows(x, trained))
    else:
        made = settings.backbone if isinstance(settings.backbone, nn.Module) else settings.backbone()
        if not isinstance(made, nn.Module):
            raise TypeError(f"backbone gives {type(made).__name__}: it must be or make a torch module")
        # A module given as a parameter is never trained itself, so that fitting twice gives the same.
        network = copy.deepcopy(made)
    dim = settings.feature_dim or getattr(network, "feature_dim", None)
    if dim is None:
        raise ValueError("give feature_dim, the number of features that the backbone returns")
    options = settings.method_options or {}
    all_bins = bins[0] if len(bins) == 1 else list(bins)
    return build_model(settings.method, network, int(dim), all_bins, offset=offset, **options)


def calibration_recipe(
    settings: Settings, networks: Sequence[Network], inputs: Inputs, *, held_out: bool = True
) -> CalibrationRecipe:
    """Return how to calibrate what these networks predict."""
    return CalibrationRecipe(
        scaling=settings.calibrate if HEADS[networks[0].method.head.name].scalable else False,
        intervals=settings.conformal,
        emphasis=settings.emphasis,
        votes=len(networks) > 1,
        held_out=held_out,
        column=inputs.groups,
    )


def recalibrated(
    model: Model, settings: Settings, X: Any, y: Any, base_prediction: ArrayLike | None = None
) -> Model:
    """Return the model with scaling and intervals fitted to rows that training did not see.

    Half of the rows fit the scaling and the other half the intervals; with fewer than 80 rows all of them do
    both. Networks, base, bounds and emphasis stay as they are.
    """
    labels = checked_labels(X, y, len(model.targets))
    if len(labels) < MIN_HOLDOUT:
        raise ValueError(f"recalibrate needs at least {MIN_HOLDOUT} rows, got n_samples={len(labels)}")
    for target, column in zip(model.targets, labels.T, strict=True):
        target.labels.bounds.check(column)
    rows = model.encode(X)
    select, confirm = halves(len(labels), 0, 4 * MIN_HOLDOUT)
    recipe = replace(calibration_recipe(settings, model.networks, model.inputs), votes=False)
    each = zip(model.raw(rows, base_prediction), labels.T, model.targets, strict=True)
    targets = tuple(
        calibrate(
            raw.pooled,
            own,
            rows.groups,
            target.labels,
            replace(recipe, emphasis=target.emphasis),
            select,
            confirm,
        )
        for raw, own, target in each
    )
    record = replace(model.record, held_out=True, unseen=len(confirm) < len(labels), recalibrated=len(labels))
    return replace(model, targets=targets, record=record)


def checked_labels(X: Any, y: Any, targets: int | None = None) -> Floats:
    """Return labels as numbers, one for each row and target; with `targets`, as many as at fit. (N, T)"""
    if y is None:
        raise ValueError("This TailRegressor estimator requires y to be passed, but the target y is None.")
    labels = checked_targets(y)
    check_consistent_length(range(row_count(X)), labels)
    labels = labels.reshape(len(labels), -1)
    if targets is not None and labels.shape[1] != targets:
        raise ValueError(f"y has {labels.shape[1]} targets, but the model was fitted with {targets}")
    return labels


def label_bounds(asked: Any, labels: Floats, where: str = "y") -> list[Bounds]:
    """Return the bounds of each target, as given or as observed; a label beyond them is an error. (N, T)"""
    each = bounds_of_targets(asked, list(labels.T))
    for bounds, column in zip(each, labels.T, strict=True):
        bounds.check(column, where)
    return each


def bounds_of_targets(asked: Any, columns: Sequence[Floats]) -> list[Bounds]:
    """Return the bounds of each target, as given or as observed in its labels."""
    pair = isinstance(asked, list | tuple) and all(end is None or isinstance(end, Real) for end in asked)
    if len(columns) > 1 and isinstance(asked, list | tuple) and not pair:
        if len(asked) != len(columns):
            raise ValueError(f"bounds has {len(asked)} entries for {len(columns)} targets")
        return [bounds_of(own, column) for own, column in zip(asked, columns, strict=True)]
    return [bounds_of(asked, column) for column in columns]


def label_supports(settings: Settings, labels: Floats) -> list[LabelSupport]:
    """Return the values that the labels of each target can have. (N, T)"""
    return [
        LabelSupport.from_labels(column) if settings.keep_values else LabelSupport() for column in labels.T
    ]


def label_bins(settings: Settings, labels: Floats, weight: Floats) -> list[LabelBins]:
    """Return the label bins of each target. (N, T), (N,)"""
    return [LabelBins.from_labels(column, weight=weight, **settings.given_bins) for column in labels.T]


def _given(base_prediction: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Predictions of the user's own base. (N, T)"""
    wanted = shape[:1] if shape[1] == 1 else shape
    return given_predictions(base_prediction, wanted).reshape(shape)


def _watched(inputs: Inputs, eval_set: Any, targets: int, given: bool) -> Rows:
    """The rows of an `eval_set`, to stop and calibrate by."""
    X, y = checked_eval_set(eval_set)
    if given:
        raise ValueError("eval_set cannot be used with base_prediction: leave one of them out")
    labels = checked_labels(X, y, targets)
    return Rows(inputs.checked(X), labels, np.ones(len(labels)))


def _check_start(start: Model, inputs: Inputs, targets: int) -> None:
    """Raise an error if a model to go on from has other targets or columns."""
    for name, mine, its in (
        ("number of targets", targets, len(start.targets)),
        ("columns", *(_columns(each) for each in (inputs, start.inputs))),
    ):
        if mine != its:
            raise ValueError(f"init_model differs in its {name}: {its!r:.200}, not {mine!r:.200}")


def _columns(inputs: Inputs) -> list[str] | int:
    return list(getattr(inputs.columns, "feature_names_in_", [])) or inputs.columns.n_features_in_
