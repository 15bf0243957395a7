"""A fitted model: everything that a prediction needs, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from tailwise.calibration.calibration import Calibration, Labels, Predicted, Raw
from tailwise.distributions.members import Distribution, stack
from tailwise.labels.bins import LabelBins
from tailwise.model.base import Base, CrossFitted
from tailwise.model.inputs import Encoded, Inputs, TableInputs, encoded
from tailwise.networks.network import Network
from tailwise.networks.together import Pool, Predictor, Together, together
from tailwise.options import Count
from tailwise.training.loop import FitResult, predict

Floats = NDArray[np.float64]
P = TypeVar("P", Network, Predictor)

PART = 8192
"""Rows that are predicted at a time, from their encoding to their intervals, which bounds the memory."""
TABLE_BATCH = 512
"""Rows of a table that go through networks at a time: so many stay in the processor's cache."""

KEPT_EMPHASES = 8
"""Emphases other than the model's own whose intervals are kept."""


@dataclass(frozen=True, eq=False)
class Record:
    """How a model came about."""

    histories: tuple[FitResult, ...]
    """The training of each network."""
    held_out: bool
    """Whether the rows that calibrate were held out from training."""
    unseen: bool
    """Whether nothing before the intervals used the rows that they were fitted to."""
    recalibrated: Count = 0
    """Rows that the model was recalibrated on, 0 if it was not."""


@dataclass(frozen=True, eq=False)
class Model:
    """What a fit returns: inputs, base, networks and the calibration of each target.

    Predictions, files, exports, servers, explanations and reports read it; none changes it.
    """

    inputs: Inputs
    base: Base
    networks: tuple[Predictor, ...]
    targets: tuple[Calibration, ...]
    names: tuple[str, ...] | None
    """Names of the targets, if they had any."""
    record: Record
    device: str
    """Where a backbone of the user's own, or one for pictures, predicts."""
    rivals: tuple[CrossFitted, ...] = ()
    """For each target the boosted trees that reports compare with, if they are not the base."""

    @property
    def several(self) -> bool:
        """Whether there are several targets: labels are (N, T) then."""
        return len(self.targets) > 1

    @property
    def bins(self) -> list[LabelBins]:
        """Label bins of each target."""
        return [target.bins for target in self.targets]

    @property
    def latent_bins(self) -> list[LabelBins]:
        """Bins of latent labels of each target, which networks see."""
        return [target.labels.latent_bins for target in self.targets]

    @property
    def table(self) -> TableInputs:
        """The inputs, if they are tables; an error otherwise."""
        if not isinstance(self.inputs, TableInputs):
            raise ValueError("this model takes no tables: its inputs have no columns")
        return self.inputs

    def at(self, emphasis: float | None = None, label_prior: Any = None) -> Model:
        """Return the model under an emphasis or a label prior, with several targets a list of priors."""
        if emphasis is None and label_prior is None:
            return self
        kept = self._at_emphases.get(emphasis) if label_prior is None else None
        if kept is not None:
            return kept
        priors = (
            label_prior if self.several and label_prior is not None else [label_prior] * len(self.targets)
        )
        if not isinstance(priors, list | tuple) or len(priors) != len(self.targets):
            raise ValueError(
                f"label_prior must be a list with one for each of the {len(self.targets)} targets"
            )
        targets = zip(self.targets, priors, strict=True)
        moved = replace(self, targets=tuple(target.at(emphasis, prior) for target, prior in targets))
        moved.__dict__["together"] = self.together
        if label_prior is None:
            if len(self._at_emphases) >= KEPT_EMPHASES:
                self._at_emphases.clear()
            self._at_emphases[emphasis] = moved
        return moved

    @cached_property
    def _at_emphases(self) -> dict[float | None, Model]:
        """Models that `at` has made: to fit their intervals takes longer than to predict a row."""
        return {}

    @cached_property
    def together(self) -> Together | Pool | None:
        """The networks of a table as one that predicts faster, if they are alike."""
        return together(self.networks) if self.inputs.is_table else None

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: without what is computed on demand."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def encode(self, X: Any, base_prediction: ArrayLike | None = None) -> Encoded:
        """Return rows of X as the networks, the base and the intervals take them."""
        rows = encoded(self.inputs, X)
        if base_prediction is None:
            return rows
        return replace(rows, given=self.base.offset(rows.matrix, len(rows), base_prediction))

    def raw(self, rows: Encoded) -> list[Raw]:
        """Return what the networks predict for each target, before calibration. (N,) each"""
        labels, bases = [target.labels for target in self.targets], self.base.targets
        offset = latent_offset(self.base.offset(rows.matrix, len(rows), rows.given), labels)
        x = beside_features(rows.x, offset, self.latent_bins) if self.inputs.is_table else rows.x
        predict = partial(network_prediction, table=self.inputs.is_table, device=self.device)
        around = offset[:, : len(labels)]
        if self.together is None:
            every = stack([predict(network, x, around) for network in self.networks])
        else:
            every = predict(self.together, x, around).map(lambda p: p.movedim(1, 0))
        return [
            Raw.of(
                every[..., t] if self.several else every,
                rows.groups,
                partial(bases[t].variance, rows.matrix) if bases else float,
            )
            for t in range(len(self.targets))
        ]

    def predicted(self, X: Any, base_prediction: ArrayLike | None = None) -> list[Predicted]:
        """Return calibrated predictions of each target, with their intervals at any coverage."""
        return self.calibrated(self.raw(self.encode(X, base_prediction)))

    def in_parts(self, X: Any, base_prediction: ArrayLike | None = None) -> Iterator[list[Predicted]]:
        """Yield what `predicted` returns for some rows at a time, which bounds the memory."""
        for rows in self.encode(X, base_prediction).parts(PART):
            yield self.calibrated(self.raw(rows))

    def calibrated(self, raw: Sequence[Raw]) -> list[Predicted]:
        """Return what `raw` returned after calibration, under the label prior in use."""
        return [calibrate(of_one) for calibrate, of_one in zip(self.targets, raw, strict=True)]

    def columns(self, parts: Iterable[Sequence[Iterable[Tensor]]]) -> list[Floats]:
        """Return figures of each part and target as columns. (N,) each, or (N, T) for several targets"""
        joined = (
            [torch.stack(figure, dim=1) if self.several else figure[0] for figure in zip(*of, strict=True)]
            for of in parts
        )
        return [torch.cat(column).double().numpy() for column in zip(*joined, strict=True)]

    def target_name(self, t: int) -> str | int:
        """Return the name of a target, or its number if the targets have no names."""
        return self.names[t] if self.names else t

    def about_held_out(self) -> str:
        """Return what is special about the rows that the intervals rest on; empty if nothing is."""
        record = self.record
        if record.recalibrated:
            return f"The model was recalibrated on {record.recalibrated} rows that training did not see.\n"
        if not record.held_out:
            return (
                "The table is too small to hold out rows. The figures below are of training rows: they are "
                "optimistic and guarantee nothing for new rows.\n"
            )
        if len(self.networks) > 1:
            return (
                f"Each of the {len(self.networks)} networks held out other rows, which also decided when it "
                "stopped, and new rows are predicted by all of them: promises below are approximate.\n"
            )
        if not record.unseen:
            return (
                "The held-out rows also served the base or decided when to stop training: promises below "
                "are approximate.\n"
            )
        return ""


def ready(network: P, *, table: bool) -> P:
    """Return a trained network in the precision and the place in which it predicts.

    Networks for tables predict on the CPU in float64: a row's prediction does not depend on the rows beside
    it, whereas float32 products round differently for each batch size.
    """
    return network.to("cpu").double().eval() if table else network


def network_prediction(
    network: Predictor | Together, x: Any, offset: Floats, *, table: bool, device: str
) -> Distribution:
    """Return a network's predictions before calibration, in batches of bounded memory. offset: (N, T or 0)

    A model predicts in the same place wherever it was trained, so that its numbers are the same.
    """
    around = offset_tensor(offset)
    if table:
        return predict(network, x, TABLE_BATCH, offset=around, dtype=torch.float64)
    return predict(network.to(predicting_device(device)), x, PART, offset=around)


def predicting_device(device: str) -> torch.device:
    """Return where a backbone of the user's own predicts: where it trains, or the CPU without that device."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    wanted = {"auto": ("cuda",), "gpu": ("cuda", "mps")}.get(device, (device,))
    return torch.device(next((name for name in wanted if there.get(name)), "cpu"))


def latent_offset(offset: Floats, labels: Sequence[Labels]) -> Floats:
    """Return base predictions of labels, the first T columns, as predictions of latent labels.

    (N, T + Q) -> (N, T + Q), or (N, 0) without a base
    """
    if not offset.shape[1] or all(about.transform.is_identity for about in labels):
        return offset
    latent = [about.transform.limited(offset[:, t]) for t, about in enumerate(labels)]
    return np.column_stack([*latent, offset[:, len(labels) :]])


def beside_features(features: Tensor, offset: Floats, bins: Sequence[LabelBins]) -> Tensor:
    """Return features with standardised base predictions, and further columns as they are, beside them.

    (N, F), (N, T + Q) -> (N, F + T + Q)
    """
    if not offset.shape[1]:
        return features
    standardized = [(offset[:, t] - b.location) / b.scale for t, b in enumerate(bins)]
    columns = np.column_stack([*standardized, offset[:, len(bins) :]])
    beside = torch.from_numpy(columns).to(features.dtype)
    return torch.cat([features, beside], dim=1)


def offset_tensor(offset: Floats) -> Tensor | None:
    """Return base predictions as networks take them, None without a base. (N, T) or (N, 0)"""
    return torch.tensor(squeezed(offset)) if offset.shape[1] else None


def squeezed(values: Floats) -> Floats:
    """Return values of one target without its dimension. (N, 1) -> (N,)"""
    return values[:, 0] if values.shape[1] == 1 else values
