"""How `TailRegressor` is fitted, step by step."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from tailwise.core.distributions import Distribution, concatenate
from tailwise.core.lookup import check_name, nearest
from tailwise.core.support import LabelSupport
from tailwise.core.truncation import Bounds
from tailwise.data.inputs import take_rows
from tailwise.data.splits import halves
from tailwise.estimator.answering import Answering
from tailwise.estimator.holdout import MIN_HOLDOUT
from tailwise.estimator.parameters import DEFAULT_BACKBONE, stream_config, table_config
from tailwise.estimator.picture_inputs import augmentation, picture_config
from tailwise.estimator.preparing import Floats, Rows
from tailwise.learning.config import TrainConfig
from tailwise.learning.loop import TensorData, fit
from tailwise.learning.progress import visible
from tailwise.methods import build_model, get_method
from tailwise.networks.backbones import BACKBONES, IMAGE_BACKBONES, make_backbone, make_image_backbone
from tailwise.networks.heads import HEADS
from tailwise.networks.trainable import Trainable
from tailwise.resampling.smogn import resampled
from tailwise.uncertainty.calibrator import fit_calibrator

logger = logging.getLogger(__name__)


class FitRows(NamedTuple):
    """Rows on their way to a network."""

    features: Any
    labels: Floats  # (N,) or (N, T)
    weight: Floats  # (N,)
    offset: Floats | None  # base predictions, in the shape of the labels
    groups: Rows | None = None  # codes in the column that intervals go by, (N,)

    def rows(self, rows: Rows) -> FitRows:
        offset = None if self.offset is None else self.offset[rows]
        groups = None if self.groups is None else self.groups[rows]
        return FitRows(take_rows(self.features, rows), self.labels[rows], self.weight[rows], offset, groups)

    def tensors(self, *, weighted: bool = True) -> TensorData:
        """As the training loop takes them; weights have a mean of 1."""
        weight = None
        if weighted and not (self.weight == self.weight[0]).all():
            weight = torch.from_numpy(self.weight / self.weight.mean()).float()
        offset = None if self.offset is None else torch.tensor(self.offset)
        # A copy: the labels may be read-only.
        return TensorData(self.features, torch.tensor(self.labels), weight, offset=offset)


def _numbered(path: Path, k: int) -> Path:
    return path if k == 0 else path.with_name(f"{path.name}.{k}")


class Fitting(Answering):
    """The steps of `TailRegressor.fit`, in their order."""

    def _check_parameters(self) -> None:
        """Raise an error for parameters that name nothing or contradict one another."""
        get_method(self.method).parts.with_options(**(self.method_options or {}))
        if self.conformal not in ("global", "region", None):
            hint = nearest(str(self.conformal), ("global", "region"))
            raise ValueError(f"unknown conformal {self.conformal!r}{hint}, or None")
        if self.conformal_by is not None and self.conformal is None:
            raise ValueError("conformal_by needs conformal intervals: leave out conformal=None")
        if self.conformal_by is not None and self._raw_inputs:
            raise ValueError("conformal_by names a column of a table: leave it out for other inputs")
        if self.few > self.many:
            raise ValueError(f"few={self.few} must not exceed many={self.many}")
        self._train_config(1, 0)  # raises an error for an unknown monitor
        if isinstance(self.backbone, str) and self.backbone != "auto":
            check_name("backbone", self.backbone, [*BACKBONES, *IMAGE_BACKBONES])
        augmentation(self.augment)  # raises an error for an unknown name
        if self.feature_dim is not None and isinstance(self.backbone, str):
            raise ValueError(
                f"feature_dim is for a backbone of your own; {self.backbone!r} has its own: leave it out"
            )

    def _watched(self, X: Any, labels: Floats) -> FitRows:
        """Rows to stop and calibrate by."""
        features, matrix = self._features(X)
        offset = self._offset(matrix, len(labels), None)
        return FitRows(features, labels, np.ones(len(labels)), offset, self._interval_groups(X))

    def _build(self, inputs: Any, trained: Rows) -> Trainable:
        if isinstance(self.backbone, str) and self._takes_pictures:
            network: nn.Module = make_image_backbone(self.backbone)
        elif isinstance(self.backbone, str):
            name = DEFAULT_BACKBONE if self.backbone == "auto" else self.backbone
            network = make_backbone(name, inputs.shape[1], rows=take_rows(inputs, trained))
        else:
            made = self.backbone if isinstance(self.backbone, nn.Module) else self.backbone()
            if not isinstance(made, nn.Module):
                raise TypeError(f"backbone gives {type(made).__name__}: it must be or make a torch module")
            # A module given as a parameter is never trained itself, so that fitting twice gives the same.
            network = copy.deepcopy(made)
        dim = self.feature_dim or getattr(network, "feature_dim", None)
        if dim is None:
            raise ValueError("give feature_dim, the number of features that the backbone returns")
        options = self.method_options or {}
        return build_model(self.method, network, int(dim), self.bins_, offset=self._has_offset, **options)

    def _train(
        self,
        data: FitRows,
        parts: Sequence[tuple[Rows, Rows]],
        watched: FitRows | None,
        trained: Rows,
        seed: int,
        checkpoint: str | Path | None,
        start: Sequence[Trainable] | None = None,
    ) -> tuple[Distribution, FitRows, Rows, Rows]:
        """Train a network for each part; return predictions for held-out rows, those rows, and which of
        them may choose (`select`) and which nothing has used so far (`confirm`)."""
        inputs = self._inputs(data.features, data.offset)
        data = data._replace(features=inputs)
        if watched is not None:
            watched = watched._replace(features=self._inputs(watched.features, watched.offset))
        self.networks_, self.histories_ = [], []
        held, predictions = [], []
        change = augmentation(self.augment) if self._takes_pictures else None
        with torch.random.fork_rng(devices=[]), visible() if self.verbose else nullcontext():
            for k, (train, rest) in enumerate(parts):
                valid = watched if watched is not None else data.rows(rest)
                select, confirm = np.arange(len(valid.labels)), np.arange(len(valid.labels))
                if len(parts) == 1:
                    select, confirm = halves(len(valid.labels), seed, 4 * MIN_HOLDOUT)
                if self.verbose and len(parts) > 1:
                    logger.info("network %d of %d", k + 1, len(parts))
                torch.manual_seed(seed + k)
                if start is None:
                    network = self._build(inputs, trained)
                else:
                    network = copy.deepcopy(start[k % len(start)])
                path = None if checkpoint is None else _numbered(Path(checkpoint), k)
                self.histories_.append(
                    fit(
                        network,
                        replace(self._resampled(network, data.rows(train), seed).tensors(), transform=change),
                        valid.rows(select).tensors(weighted=False),
                        self._train_config(len(train), seed + k),
                        checkpoint=path,
                        progress=None if self.verbose else False,
                    )
                )
                self.networks_.append(network)
                held.append(valid)
                predictions.append(self._network_prediction(network, valid.features, valid.offset))
        self.held_out_ = watched is not None or parts[0][0] is not parts[0][1]
        self.unseen_ = self.held_out_ and len(parts) == 1 and len(confirm) < len(held[0].labels)
        if len(parts) > 1:
            rows = np.concatenate([rest for _, rest in parts])
            select = confirm = np.arange(len(rows))
            return concatenate(predictions), data.rows(rows), select, confirm
        return predictions[0], held[0], select, confirm

    def _resampled(self, network: Trainable, data: FitRows, seed: int) -> FitRows:
        """Training rows, resampled if the method asks for it."""
        name = network.method.resampling
        if name is None:
            return data
        if self._raw_inputs or data.labels.ndim == 2:
            raise ValueError(
                f"method {self.method!r} makes new rows between those of a table, for one target: "
                "choose another one for pictures, a backbone of your own or several targets"
            )
        x, y = resampled(name, data.features, data.labels, data.weight, seed)
        return FitRows(x, y, np.ones(len(y)), None)

    def _train_config(self, rows: int, seed: int, *, streamed: bool = False) -> TrainConfig:
        """How to train on that many rows, where the parameters leave it open."""
        cpu = self.device == "auto" and not torch.cuda.is_available()
        cuda = self.device in ("auto", "gpu", "cuda") and torch.cuda.is_available()
        settings = picture_config(rows, cuda) if self._takes_pictures else table_config(rows)
        settings = stream_config(rows) if streamed else settings
        given = {"epochs": self.epochs, "batch_size": self.batch_size, "lr": self.lr}
        settings |= {name: value for name, value in given.items() if value != "auto"}
        return TrainConfig(
            **settings,
            weight_decay=self.weight_decay,
            patience=self.patience,
            monitor=self.monitor,
            seed=seed % 2**31,
            accelerator="cpu" if cpu else self.device,
        )

    @property
    def _scalable(self) -> bool:
        return HEADS[self.networks_[0].method.head].scalable

    def _calibrate(
        self,
        raw: Distribution,
        held: FitRows,
        select: Rows,
        confirm: Rows,
        bounds: Sequence[Bounds | None],
        supports: Sequence[LabelSupport | None],
    ) -> None:
        """Fit scaling, emphasis and intervals of each target on held-out rows."""
        self.calibrators_ = []
        for t, bins in enumerate(self._all_bins()):
            several = held.labels.ndim == 2
            fitted = fit_calibrator(
                raw[:, t] if several else raw,
                held.labels[:, t] if several else held.labels,
                bins,
                select,
                confirm,
                base=None if held.offset is None else held.offset.reshape(len(held.labels), -1)[:, t],
                calibrate=self.calibrate if self._scalable else False,
                conformal=self.conformal,
                emphasis=self.emphasis,
                bounds=bounds[t],
                many=self.many,
                few=self.few,
                held_out=self.held_out_,
                votes=len(self.networks_) > 1,
                column=self.conformal_groups_,
                column_codes=held.groups,
            )
            self.calibrators_.append(replace(fitted, support=supports[t]))
