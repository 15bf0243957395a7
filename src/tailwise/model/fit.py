"""From labelled rows to a fitted model."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_consistent_length
from torch import nn

from tailwise.calibration.calibration import Calibration, CalibrationRecipe, Labels, calibrate
from tailwise.distributions.members import Distribution, concatenate
from tailwise.distributions.transform import AnyTransform
from tailwise.distributions.truncation import Bounds, bounds_of
from tailwise.labels.bins import LabelBins
from tailwise.labels.support import LabelSupport
from tailwise.methods import build_model
from tailwise.model.base import Base, GivenBase, NoBase, fit_base, given_predictions
from tailwise.model.families import DISTINCT, pool, share_alone
from tailwise.model.inputs import Encoded, Inputs, augmentation, column_of
from tailwise.model.model import (
    Model,
    Record,
    beside_features,
    latent_offset,
    network_prediction,
    offset_tensor,
    ready,
    squeezed,
)
from tailwise.model.settings import Settings, bins_of, candidates, chosen_transforms
from tailwise.model.split import MIN_HOLDOUT, Split, check_row_count, group_codes, latest_rows
from tailwise.networks.backbones import make_backbone
from tailwise.networks.draws import seeded_weights
from tailwise.networks.heads import HEADS
from tailwise.networks.images import ImageDecoder, ImageResNet, make_image_backbone
from tailwise.networks.network import Network
from tailwise.networks.ranks import rank_and_ranks
from tailwise.networks.together import Pool, Predictor
from tailwise.resampling.smogn import resampled
from tailwise.tables.inputs import checked_eval_set, checked_targets, row_count, take_rows, target_names
from tailwise.tables.rows import halves, merge_equal_rows
from tailwise.training.config import TrainConfig, training_device
from tailwise.training.loop import FitResult, TensorData, one_thread, takes_one_thread, visible
from tailwise.training.loop import fit as train

QUANTILES = 2001
"""Quantiles of the training labels that a model keeps, for a constant to compare with."""
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
    base: Floats
    """Predictions of a base of the user's own. (N, T), or (N, 0) without them"""
    groups: Index | None = None
    """Numbers of the groups of rows that must not be split. (N,)"""

    def rows(self, rows: Index) -> Rows:
        """Return some of the rows, in that order. rows: (M,)"""
        X = self.X if np.array_equal(rows, np.arange(len(self.y))) else take_rows(self.X, rows)
        groups = None if self.groups is None else self.groups[rows]
        return Rows(X, self.y[rows], self.weight[rows], self.base[rows], groups)

    def merged(self, sample_weight: ArrayLike | None) -> Rows:
        """Return the rows with equal ones merged into one of a larger weight."""
        told_apart = [self.y, self.base] if self.groups is None else [self.y, self.base, self.groups]
        rows, weight = merge_equal_rows(self.X, np.column_stack(told_apart).astype(np.float64), sample_weight)
        return replace(self.rows(rows), weight=weight)


@dataclass(frozen=True, eq=False)
class Examples:
    """Labelled rows as a network takes them."""

    x: Any
    """Inputs of the network; of tables with the base predictions beside the features."""
    y: Floats
    """(N, T)"""
    latent: Floats
    """Labels as the network learns them. (N, T)"""
    weight: Floats
    """(N,)"""
    offset: Floats
    """Base predictions of latent labels. (N, T), or (N, 0) without a base"""
    base: Floats
    """Base predictions. (N, T), or (N, 0) without a base"""
    groups: Index
    """Codes in the column that intervals go by. (N,)"""

    def rows(self, rows: Index) -> Examples:
        """Return some of the rows. rows: (M,)"""
        numbers = self.y, self.latent, self.weight, self.offset, self.base
        y, latent, weight, offset, base = (part[rows] for part in numbers)
        return Examples(take_rows(self.x, rows), y, latent, weight, offset, base, self.groups[rows])

    def tensors(self, *, weighted: bool = True) -> TensorData:
        """Return what the training loop takes; weights have a mean of 1."""
        weight = None
        if weighted and not (self.weight == self.weight[0]).all():
            weight = torch.from_numpy(self.weight / self.weight.mean()).float()
        # A copy: the labels may be read-only.
        labels = torch.tensor(squeezed(self.latent))
        return TensorData(self.x, labels, weight, offset=offset_tensor(self.offset))


@dataclass(frozen=True, eq=False)
class Held:
    """Held-out rows with the predictions of networks that were not trained on them."""

    raw: tuple[Distribution, ...]
    """Of each target, before calibration. (n,) each"""
    y: Floats
    """(n, T)"""
    groups: Index
    """Codes in the column that intervals go by. (n,)"""
    select: Index
    """Rows that may choose: stopping, scaling, emphasis."""
    confirm: Index
    """Rows that nothing has used so far, if there are enough."""
    base: Floats
    """Base predictions. (n, T), or (n, 0) without a base"""

    @classmethod
    def of(cls, raw: Distribution, examples: Examples, select: Index, confirm: Index) -> Held:
        """Put predictions of a network beside their rows. raw: (n,) or (n, T)"""
        targets = examples.y.shape[1]
        columns = [raw[:, t] for t in range(targets)] if targets > 1 else [raw]
        return cls(tuple(columns), examples.y, examples.groups, select, confirm, examples.base)

    def calibrations(
        self, labels: Sequence[Labels], recipes: Sequence[CalibrationRecipe]
    ) -> tuple[Calibration, ...]:
        """Return the calibration of each target."""
        rows = self.select, self.confirm
        bases = list(self.base.T) or [None] * len(labels)
        targets = zip(self.raw, self.y.T, labels, recipes, bases, strict=True)
        return tuple(
            calibrate(raw, y, self.groups, about, recipe, *rows, base)
            for raw, y, about, recipe, base in targets
        )


class Run(NamedTuple):
    """A trained network, or two that are pooled."""

    network: Predictor
    histories: tuple[FitResult, ...]
    raw: Distribution
    """What it predicts for its held-out rows, before calibration."""


@dataclass(frozen=True, eq=False)
class Training:
    """What all networks of a fit share, be it to a table or to a stream: how they are trained and joined."""

    settings: Settings
    inputs: Inputs
    base: Base
    labels: tuple[Labels, ...]
    seed: int

    @property
    def bins(self) -> list[LabelBins]:
        """Bins of the latent labels of each target."""
        return [labels.latent_bins for labels in self.labels]

    def examples(self, rows: Encoded, y: Floats, weight: Floats, base: Floats) -> Examples:
        """Put labels and base predictions beside encoded rows."""
        offset, targets = latent_offset(base, self.labels), len(self.labels)
        x = beside_features(rows.x, offset, self.bins) if self.inputs.is_table else rows.x
        around = offset[:, :targets], base[:, :targets]
        return Examples(x, y, self.latent(y), weight, *around, rows.groups)

    def latent(self, y: Floats) -> Floats:
        """Return labels as networks learn them. (N, T)"""
        columns = zip(self.labels, y.T, strict=True)
        return np.stack([labels.transform.limited(column) for labels, column in columns], axis=1)

    def network(self, x: Any, trained: Index, number: int = 0) -> Network:
        """Return an untrained network for inputs such as x, of which it may read the trained rows."""
        settings, bins = self.settings, self.bins
        with seeded_weights(self.seed + number):
            backbone = _backbone(settings, x, trained)
            dim = settings.feature_dim or getattr(backbone, "feature_dim", None)
            if dim is None:
                raise ValueError("give feature_dim, the number of features that the backbone returns")
            return build_model(
                settings.method,
                backbone,
                int(dim),
                bins if len(bins) > 1 else bins[0],
                decoder=self._decoder(backbone, x, int(dim)),
                offset=not self.base.is_identity,
                **(settings.method_options or {}),
            )

    def _decoder(self, backbone: nn.Module, x: Any, dim: int) -> nn.Module | None:
        """Return a decoder of tables or pictures if the method reconstructs its input (VIR:recon)."""
        parts = self.settings.parts
        reconstruction, latent_dim = parts.loss("reconstruction"), parts.latent.options.get("dim") or dim
        if reconstruction is None or reconstruction.options["features"] or len(self.bins) > 1:
            return None
        if isinstance(backbone, ImageResNet):
            return ImageDecoder(latent_dim, mean=backbone.mean, std=backbone.std)
        return nn.Linear(latent_dim, x.shape[1]) if self.inputs.is_table else None

    def run(
        self,
        network: Network,
        rows: Any,
        held: Examples,
        select: Index,
        config: TrainConfig,
        checkpoint: str | Path | None,
        learn: Callable[..., FitResult] | None = None,
    ) -> Run:
        """Train a network on rows, stop by the held-out rows `select`, and predict all held-out rows.

        `learn` takes the place of the training loop.
        """
        valid = held.rows(select).tensors(weighted=False)
        history = (learn or train)(network, rows, valid, config, checkpoint=checkpoint)
        table, device = self.inputs.is_table, self.settings.device
        network.drop_decoders()
        network = ready(network, table=table)
        with self.computing():
            raw = network_prediction(network, held.x, held.offset, table=table, device=device)
        return Run(network, (history,), raw)

    def model(
        self,
        runs: Sequence[Run],
        held: Held,
        names: Sequence[str],
        *,
        held_out: bool = True,
        unseen: bool = True,
    ) -> Model:
        """Calibrate on held-out rows, which no step before `runs` has seen if `unseen`; return the model."""
        networks = tuple(run.network for run in runs)
        recipe = calibration_recipe(self.settings, networks, self.inputs, held_out=held_out)
        with self.computing():
            targets = held.calibrations(self.labels, [recipe] * len(self.labels))
        unseen = unseen and held_out and len(runs) == 1 and len(held.confirm) < len(held.y)
        record = Record(tuple(h for run in runs for h in run.histories), held_out, unseen)
        device = self.settings.device
        return Model(self.inputs, self.base, networks, targets, tuple(names) or None, record, device)

    def computing(self) -> AbstractContextManager[None]:
        """For tables, compute on one thread: what several threads compute depends on their number."""
        return one_thread() if self.inputs.is_table else nullcontext()


def fit(
    settings: Settings,
    X: Any,
    y: Any,
    sample_weight: ArrayLike | None = None,
    eval_set: tuple[Any, Any] | None = None,
    checkpoint: str | Path | None = None,
    base_prediction: ArrayLike | None = None,
    *,
    groups: ArrayLike | str | None = None,
    time: ArrayLike | str | None = None,
    start: Model | None = None,
) -> Model:
    """Train, calibrate and return a model; the arguments are those of `TailRegressor.fit`."""
    settings.check()
    group_of, time_of = column_of(X, groups, "groups"), column_of(X, time, "time")
    inputs, X = settings.inputs().see(X)
    y, names = checked_labels(X, y), target_names(y) or []
    check_row_count(len(y))
    bounds, supports = bounds_of_targets(settings.bounds, y.T), list(map(LabelSupport.from_labels, y.T))
    for ends, column in zip(bounds, y.T, strict=True):
        ends.check(column)
    given = np.empty((len(y), 0)) if base_prediction is None else given_predictions(base_prediction, y.shape)
    makers = settings.base_makers(len(y), given=base_prediction is not None)
    watched = None if eval_set is None else _watched(inputs, eval_set, given.shape[1], y.shape[1])
    rows = Rows(X, y, np.ones(len(y)), given, None if group_of is None else group_codes(group_of, len(y)))
    if time_of is not None:
        if eval_set is not None or base_prediction is not None:
            raise ValueError("time cannot be used with eval_set or base_prediction: leave one out")
        early, late = latest_rows(time_of, len(y), settings.validation_fraction)
        watched, rows = rows.rows(late), rows.rows(early)
        sample_weight = _check_sample_weight(sample_weight, y)[early]
    seed = int(check_random_state(settings.random_state).randint(2**31 - 1))
    total, rows = len(rows.y), rows.merged(sample_weight)

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
        choices = [candidates(settings.target_transform, column) for column in rows.y.T]
        inputs = inputs.fit(take_rows(rows.X, trained))
        encoded = inputs.encode(rows.X)
        if makers:
            settings.log("fitting the base to %d rows", len(rows.y))
        base, offset = fit_base(makers, encoded.matrix, rows.y, rows.weight, split.fold, seed, choices)
        transforms = chosen_transforms(base, choices)
        weight = rows.weight[trained]
        bins = [
            bins_of(transform, column, weight, **settings.given_bins)
            for transform, column in zip(transforms, rows.y[trained].T, strict=True)
        ]
        if base_prediction is not None:
            base, offset = GivenBase(y.shape[1]), rows.base
    else:
        _check_start(start, inputs, y.shape[1])
        bins, base = start.bins, start.base
        transforms = [target.labels.transform for target in start.targets]
        inputs = replace(start.table, groups=inputs.groups)
        encoded = inputs.encode(rows.X)
        offset = base.offset(encoded.matrix, len(encoded), None if base_prediction is None else rows.base)
    label_facts = labels_of_targets(settings, bins, rows.y.T, rows.weight, bounds, supports, transforms)
    training = Training(settings, inputs, base, label_facts, seed)
    seen = None if watched is None else inputs.encode(watched.X)

    def examples(training: Training) -> tuple[Examples, Examples | None]:
        data = training.examples(
            encoded, rows.y, rows.weight, offset if base is training.base else offset[:, :0]
        )
        if watched is None or seen is None:
            return data, None
        around = training.base.offset(seen.matrix, len(seen), None)
        return data, training.examples(seen, watched.y, watched.weight, around)

    with visible() if settings.verbose else nullcontext():
        data, valid = examples(training)
        runs, held = _trained(training, data, split, valid, checkpoint, _family(start, "around"))
        pools = settings.pool and inputs.is_table and not base.is_identity
        if pools and len(rows.y) >= DISTINCT * total:
            settings.log("networks without the base")
            alone = replace(training, settings=settings.without_base(), base=NoBase())
            data, valid = examples(alone)
            file = None if checkpoint is None else f"{checkpoint}.alone"
            others = _trained(alone, data, split, valid, file, _family(start, "alone"))
            training, runs, held = _pooled(training, runs, held, *others)
    apart = watched is not None
    return training.model(runs, held, names, held_out=apart or split.held_out, unseen=apart)


def _trained(
    training: Training,
    data: Examples,
    split: Split,
    watched: Examples | None,
    checkpoint: str | Path | None,
    start: Sequence[Network],
) -> tuple[list[Run], Held]:
    """Train a network for each part of a split; return them, and what they predict for held-out rows.

    Small networks for tables train side by side on the CPU, one thread each. Their numbers do not depend on
    that. Larger ones use all threads, and others draw from torch's one generator: they take turns.
    """
    settings, seed, several = training.settings, training.seed, len(split.parts) > 1
    change = augmentation(settings.augment) if settings.takes_pictures else None
    stopped = Event()

    def chosen(rows: int) -> tuple[Index, Index]:
        """Return the held-out rows that stop training, and those that confirm it. (n,) each"""
        every = np.arange(rows)
        return (every, every) if several else halves(rows, seed, 4 * MIN_HOLDOUT)

    def go_on(row: object, best_epoch: int) -> None:
        if stopped.is_set():
            raise CancelledError

    def untrained(k: int) -> Network:
        if start:
            return copy.deepcopy(start[k % len(start)]).float()
        return training.network(data.x, split.trained, k)

    networks = [untrained(k) for k in range(len(split.parts))]

    def trained(k: int) -> Run:
        network, (inside, rest) = networks[k], split.parts[k]
        valid = watched or data.rows(rest)
        rows = replace(_resampled(training, network, data.rows(inside)).tensors(), transform=change)
        select, _ = chosen(len(valid.y))
        config = settings.train_config(len(inside), seed + k)
        file = checkpoint if checkpoint is None or k == 0 else f"{checkpoint}.{k}"
        title = f"network {k + 1} of {len(split.parts)}: " if several else ""
        learn = partial(train, on_epoch=go_on, title=title)
        return training.run(network, rows, valid, select, config, file, learn)

    device = training_device(settings.train_config(1, seed).accelerator)
    apart = all(network.draws_its_own and takes_one_thread(network, device) for network in networks)
    apart = apart and training.inputs.is_table and rank_and_ranks()[1] == 1
    workers = min(torch.get_num_threads(), len(networks)) if apart else 1
    if workers == 1:
        runs = [trained(k) for k in range(len(networks))]
    else:
        with ThreadPoolExecutor(workers) as threads:
            try:
                runs = list(threads.map(trained, range(len(networks))))
            except BaseException:  # Ctrl-C as well: the other networks end after their epoch
                stopped.set()
                raise
    if not several:
        valid = watched or data.rows(split.parts[0][1])
        return runs, Held.of(runs[0].raw, valid, *chosen(len(valid.y)))
    order = np.concatenate([rest for _, rest in split.parts])
    every = np.arange(len(order))
    return runs, Held.of(concatenate([run.raw for run in runs]), data.rows(order), every, every)


def _family(start: Model | None, name: str) -> list[Network]:
    """Return the networks of a family that training goes on from, if any: ``around`` a base, or ``alone``."""
    networks = () if start is None else start.networks
    pools = [getattr(network, name) for network in networks if isinstance(network, Pool)]
    return pools or [network for network in networks if isinstance(network, Network) and name == "around"]


def _pooled(
    training: Training, runs: list[Run], held: Held, others: list[Run], alone: Held
) -> tuple[Training, list[Run], Held]:
    """Pool networks around a base with others without it, or leave out one of the families."""
    chosen = held.select
    shares = [
        share_alone(mine[chosen], its[chosen], y[chosen], about.transform)
        for mine, its, y, about in zip(held.raw, alone.raw, held.y.T, training.labels, strict=True)
    ]
    if not any(shares):
        return training, runs, held
    if min(shares) == 1 and not training.base.given:
        return replace(training, base=NoBase()), others, replace(alone, base=held.base)
    pools = [
        Run(
            Pool(*cast("tuple[Network, Network]", (mine.network, its.network)), shares),
            (*mine.histories, *its.histories),
            mine.raw,
        )
        for mine, its in zip(runs, others, strict=True)
    ]
    raw = tuple(pool(*both) for both in zip(held.raw, alone.raw, shares, strict=True))
    return training, pools, replace(held, raw=raw)


def _resampled(training: Training, network: Network, data: Examples) -> Examples:
    """Return training rows, resampled if the method asks for it."""
    name = network.method.resampling
    if name is None:
        return data
    if not training.inputs.is_table or data.y.shape[1] > 1:
        raise ValueError(
            f"method {training.settings.method!r} makes new rows between those of a table, for one target: "
            "choose another one for pictures, a backbone of your own or several targets"
        )
    x, y = resampled(name, data.x, data.latent[:, 0], data.weight, training.seed)
    nothing = np.empty((len(y), 0))
    return Examples(x, y[:, None], y[:, None], np.ones(len(y)), nothing, nothing, np.zeros(len(y), np.int64))


def _backbone(settings: Settings, x: Any, trained: Index) -> nn.Module:
    """Return an untrained backbone for inputs such as x."""
    if settings.takes_pictures:
        return make_image_backbone(str(settings.backbone))
    if isinstance(settings.backbone, str):
        return make_backbone(settings.backbone_name, x.shape[1], rows=take_rows(x, trained))
    made = settings.backbone if isinstance(settings.backbone, nn.Module) else settings.backbone()
    if not isinstance(made, nn.Module):
        raise TypeError(f"backbone gives {type(made).__name__}: it must be or make a torch module")
    # A module given as a parameter is never trained itself, so that fitting twice gives the same.
    return copy.deepcopy(made)


def calibration_recipe(
    settings: Settings, networks: Sequence[Predictor], inputs: Inputs, *, held_out: bool = True
) -> CalibrationRecipe:
    """Return how to calibrate what these networks predict."""
    return CalibrationRecipe(
        scaling=settings.calibrate if HEADS[networks[0].method.head.name].scalable else False,
        conformal=settings.conformal is not None,
        emphasis=settings.emphasis,
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
    y = checked_labels(X, y, len(model.targets))
    if len(y) < MIN_HOLDOUT:
        raise ValueError(f"recalibrate needs at least {MIN_HOLDOUT} rows, not {len(y)}")
    for target, column in zip(model.targets, y.T, strict=True):
        target.labels.bounds.check(column)
    rows = model.encode(X, base_prediction)
    select, confirm = halves(len(y), 0, 4 * MIN_HOLDOUT)
    raw = tuple(target.pooled for target in model.raw(rows))
    recipe = calibration_recipe(settings, model.networks, model.inputs)
    recipes = [replace(recipe, emphasis=target.emphasis) for target in model.targets]
    held = Held(raw, y, rows.groups, select, confirm, np.empty((len(y), 0)))
    targets = held.calibrations([target.labels for target in model.targets], recipes)
    record = replace(model.record, held_out=True, unseen=len(confirm) < len(y), recalibrated=len(y))
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


def bounds_of_targets(asked: Any, columns: Sequence[Floats] | Floats) -> list[Bounds]:
    """Return the bounds of each target, as given or as observed in its labels. (T, N)"""
    each = isinstance(asked, list | tuple) and not all(end is None or isinstance(end, Real) for end in asked)
    if len(columns) == 1 or not each:
        asked = [asked] * len(columns)
    if len(asked) != len(columns):
        raise ValueError(f"bounds has {len(asked)} entries for {len(columns)} targets")
    return [bounds_of(ends, column) for ends, column in zip(asked, columns, strict=True)]


def labels_of_targets(
    settings: Settings,
    bins: Sequence[LabelBins],
    labels: Floats,
    weight: Floats | None,
    bounds: Sequence[Bounds],
    supports: Sequence[LabelSupport],
    transforms: Sequence[AnyTransform],
) -> tuple[Labels, ...]:
    """Return what is known of the labels of each target. labels: (T, N), weight: (N,)"""
    levels = np.linspace(0, 1, QUANTILES)
    quantiles = [np.quantile(y, levels, method="inverted_cdf", weights=weight) for y in labels]
    if not settings.keep_values:
        supports = [LabelSupport()] * len(bins)
    targets = zip(bins, bounds, supports, transforms, quantiles, strict=True)
    shots = settings.many, settings.few
    return tuple(
        Labels(b, ends, values, *shots, transform, quantiles=q) for b, ends, values, transform, q in targets
    )


def _watched(inputs: Inputs, eval_set: Any, given: int, targets: int) -> Rows:
    """Return the rows of an `eval_set`, to stop and calibrate by."""
    if given:
        raise ValueError("eval_set cannot be used with base_prediction: leave one of them out")
    X, y = checked_eval_set(eval_set)
    labels = checked_labels(X, y, targets)
    return Rows(inputs.checked(X), labels, np.ones(len(labels)), np.empty((len(labels), 0)))


def _check_start(start: Model, inputs: Inputs, targets: int) -> None:
    """Raise an error if a model to go on from has other targets or columns."""
    for name, mine, its in (
        ("number of targets", targets, len(start.targets)),
        ("columns", inputs.columns.described, start.inputs.columns.described),
    ):
        if mine != its:
            raise ValueError(f"init_model differs in its {name}: {its!r:.200}, not {mine!r:.200}")
