"""Networks trained on encoded rows, what they predict for held-out rows, and the model that comes of it.

Tables and streams share these steps: `fit` and `stream` read rows and prepare inputs, base and labels.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tailwise.calibration.calibration import Calibration, CalibrationRecipe, Labels, calibrate
from tailwise.distributions.members import Distribution, concatenate
from tailwise.labels.bins import LabelBins
from tailwise.methods import build_model
from tailwise.model.base import Base
from tailwise.model.inputs import Encoded, Inputs, augmentation
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
from tailwise.model.settings import Settings
from tailwise.model.split import MIN_HOLDOUT, Split
from tailwise.networks.backbones import make_backbone
from tailwise.networks.draws import seeded_weights
from tailwise.networks.heads import HEADS
from tailwise.networks.images import ImageDecoder, ImageResNet, make_image_backbone
from tailwise.networks.network import Network
from tailwise.networks.ranks import rank_and_ranks
from tailwise.networks.together import Predictor
from tailwise.resampling.smogn import resampled
from tailwise.tables.inputs import take_rows
from tailwise.tables.rows import halves
from tailwise.training.config import TrainConfig, training_device
from tailwise.training.loop import FitResult, TensorData, one_thread, takes_one_thread
from tailwise.training.loop import fit as train

Floats = NDArray[np.float64]
Index = NDArray[np.int64]


class Prepared(NamedTuple):
    """Labelled rows, encoded, with the predictions of a base."""

    rows: Encoded
    y: Floats
    """(N, T)"""
    weight: Floats
    """(N,)"""
    offset: Floats
    """What the base returned as `offset`. (N, T + Q), or (N, 0) without one"""


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
    start: tuple[Network, ...] = ()
    """Networks to go on from, if any, instead of new ones."""

    @property
    def bins(self) -> list[LabelBins]:
        """Bins of the latent labels of each target."""
        return [labels.latent_bins for labels in self.labels]

    def without_base(self, start: tuple[Network, ...]) -> Training:
        """Return how networks are trained that do not see the base, on the same rows."""
        return replace(self, settings=self.settings.without_base(), base=Base(), start=start)

    def examples(self, data: Prepared) -> Examples:
        """Return rows as networks take them; those without a base leave its predictions out."""
        rows, y, weight, base = data
        base, targets = base[:, :0] if self.base.is_identity else base, len(self.labels)
        offset = latent_offset(base, self.labels)
        x = beside_features(rows.x, offset, self.bins) if self.inputs.is_table else rows.x
        around = offset[:, :targets], base[:, :targets]
        return Examples(x, y, self.latent(y), weight, *around, rows.groups)

    def latent(self, y: Floats) -> Floats:
        """Return labels as networks learn them. (N, T)"""
        columns = zip(self.labels, y.T, strict=True)
        return np.stack([labels.transform.limited(column) for labels, column in columns], axis=1)

    def network(self, x: Any, trained: Index, number: int = 0) -> Network:
        """Return a network to train for inputs such as x, of which it may read the trained rows."""
        if self.start:
            return copy.deepcopy(self.start[number % len(self.start)]).float()
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


def train_networks(
    training: Training, rows: Prepared, split: Split, apart: Prepared | None, checkpoint: str | Path | None
) -> tuple[list[Run], Held]:
    """Train a network for each part of a split; return them, and what they predict for held-out rows.

    Small networks for tables train side by side on the CPU, one thread each. Their numbers do not depend on
    that. Larger ones use all threads, and others draw from torch's one generator: they take turns.
    `apart` are rows to hold out that are not among `rows`, instead of those of the split.
    """
    data, watched = training.examples(rows), None if apart is None else training.examples(apart)
    settings, seed, parts = training.settings, training.seed, split.parts
    several, stopped = len(parts) > 1, Event()
    change = augmentation(settings.augment) if settings.takes_pictures else None

    def halved(rows: int) -> tuple[Index, Index]:
        """Return the held-out rows that stop training, and those that confirm it. (n,) each"""
        return (np.arange(rows), np.arange(rows)) if several else halves(rows, seed, 4 * MIN_HOLDOUT)

    def go_on(row: object, best_epoch: int) -> None:
        if stopped.is_set():
            raise CancelledError

    networks = [training.network(data.x, split.trained, k) for k in range(len(parts))]

    def trained(k: int) -> Run:
        network, (inside, rest) = networks[k], parts[k]
        valid = watched or data.rows(rest)
        rows = replace(_resampled(training, network, data.rows(inside)).tensors(), transform=change)
        config = settings.train_config(len(inside), seed + k)
        file = checkpoint if checkpoint is None or k == 0 else f"{checkpoint}.{k}"
        title = f"network {k + 1} of {len(parts)}: " if several else ""
        learn = partial(train, on_epoch=go_on, title=title)
        return training.run(network, rows, valid, halved(len(valid.y))[0], config, file, learn)

    device = training_device(settings.train_config(1, seed).accelerator)
    alone = all(network.draws_its_own and takes_one_thread(network, device) for network in networks)
    alone = alone and training.inputs.is_table and rank_and_ranks()[1] == 1
    workers = min(torch.get_num_threads(), len(parts)) if alone else 1
    if workers == 1:
        runs = [trained(k) for k in range(len(parts))]
    else:
        with ThreadPoolExecutor(workers) as threads:
            try:
                runs = list(threads.map(trained, range(len(parts))))
            except BaseException:  # Ctrl-C as well: the other networks end after their epoch
                stopped.set()
                raise
    valid = watched or data.rows(np.concatenate([rest for _, rest in parts]))
    return runs, Held.of(concatenate([run.raw for run in runs]), valid, *halved(len(valid.y)))


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
