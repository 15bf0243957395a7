"""From a stream of rows, a table larger than memory, to a fitted model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from tailwise.distributions.transform import AnyTransform
from tailwise.distributions.truncation import Bounds
from tailwise.labels.bins import LabelBins
from tailwise.lookup import check_name
from tailwise.model.base import FOLDS, Base, deal_folds, fit_base
from tailwise.model.fit import bounds_of_targets, labels_of_targets
from tailwise.model.inputs import TableInputs
from tailwise.model.model import Model, beside_features, latent_offset, squeezed
from tailwise.model.settings import Settings, bins_from_summary, candidates
from tailwise.model.split import MIN_HOLDOUT
from tailwise.model.training import Held, Prepared, Training
from tailwise.streams.sources import SOURCE, FrameRows, RayRows, RowStream, Shard, as_row_stream
from tailwise.streams.survey import (
    Surveyed,
    counted,
    first_pass,
    labels_of,
    mean_weight,
    mixed,
    second_pass,
    weights_of,
)
from tailwise.tables.rows import halves
from tailwise.training.batches import in_background
from tailwise.training.loop import visible
from tailwise.training.ray_workers import RayWorkers

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

SAMPLE = 100_000
"""Training rows of a stream that fit the encodings and the base."""
HELD_OUT = 100_000
"""Rows of a stream that are held out, at most."""
SHUFFLE = 262_144
"""Rows of a stream among which batches are mixed."""
FEW_FOLDS_FROM = 50_000
"""With a sample of as many rows, the base has two folds, not five: it predicts every row of a stream."""

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class StreamColumns:
    """Which columns of a stream are inputs, targets and the weight."""

    inputs: list[str]
    targets: list[str]
    weight: str | None = None

    @property
    def all(self) -> list[str]:
        """The columns that training reads."""
        return [*self.inputs, *self.targets, *([] if self.weight is None else [self.weight])]

    @classmethod
    def of(
        cls, stream: RowStream, target: str | Sequence[str], weight: str | None, drop: Sequence[str]
    ) -> StreamColumns:
        """Return the columns of a stream by their use; inputs are those that have no other."""
        targets, kinds = [target] if isinstance(target, str) else list(target), stream.columns
        weights, names = [] if weight is None else [weight], list(kinds)
        for what, columns in {"target": targets, "weight": weights, "drop": drop}.items():
            for column in columns:
                check_name(f"column of {what}", column, names)
                if what != "drop" and kinds[column] not in ("number", "boolean"):
                    raise ValueError(
                        f"the {what} {column!r} holds {kinds[column]}: choose a column of numbers"
                    )
        others = [*targets, *drop, *weights]
        twice = next((name for name in others if others.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"column {twice!r} is named twice among target, weight and drop")
        odd = next((n for n in names if kinds[n] == "other" and n not in others), None)
        if odd is not None:
            raise ValueError(f"column {odd!r} holds lists, records or durations: leave it out with drop")
        inputs = [name for name in names if name not in others]
        if not inputs:
            raise ValueError("the stream has no column besides the target: there is nothing to predict from")
        return cls(inputs, targets, weight)


@dataclass(eq=False)
class StreamedRows:
    """The training rows of a stream as batches for the training loop, encoded on their way.

    Rows of the sample that the base was fitted on get their out-of-fold prediction.
    """

    training: Training
    inputs: TableInputs
    stream: RowStream
    columns: StreamColumns
    survey: Surveyed
    offset: Floats
    """Out-of-fold predictions for `survey.sample`. (n, T), or (n, 0) without a base"""
    weight: float
    """Mean weight of training rows."""
    shuffle: int

    def __post_init__(self) -> None:
        self.row_count = self.survey.rows - len(self.survey.held)
        numbers = self.survey.sample.index.to_numpy()
        order = np.argsort(numbers)
        self.sampled, self.offset = numbers[order], self.offset[order]

    def fingerprint(self) -> str:
        """Return what the order of the rows depends on; label counts say whether rows are the same."""
        return f"{', '.join(self.columns.all)} mixed in {self.shuffle}"

    def shard(self, number: int, shards: int, size: int, seed: int) -> Iterator[Any]:
        """Return the batches of one shard in an epoch; a thread makes some of them in advance."""
        return in_background(self._batches(seed if self.shuffle else None, size, (number, shards)))

    def _batches(self, seed: int | None, size: int, shard: Shard) -> Iterator[Any]:
        chunks = self.stream.chunks(self.columns.all, shard=shard, seed=seed)
        parts = (part for part in map(self.encoded, chunks) if len(part[1]))
        for batch in mixed(parts, size, self.shuffle, seed):
            yield tuple(None if array is None else torch.from_numpy(array) for array in batch)

    def encoded(self, chunk: pd.DataFrame) -> tuple[Any, ...]:
        """Return inputs, labels, weights and offsets of the training rows of a chunk."""
        taken = ~self.survey.held_out(chunk)
        rows = chunk if taken.all() else chunk[taken]
        if len(rows) == 0:
            return (np.empty((0, 0), np.float32), np.empty(0), None, None)
        labels, weight = labels_of(rows, self.columns.targets), weights_of(rows, self.columns.weight)
        try:
            matrix = self.inputs.encoder.encoded(rows[self.columns.inputs])
            base = self.training.base.offset(matrix, len(rows))
        except ValueError as error:
            raise ValueError(f"{chunk.attrs.get(SOURCE, 'the stream')}: {error}") from None
        numbers = rows.index.to_numpy()
        place = np.searchsorted(self.sampled, numbers).clip(max=len(self.sampled) - 1)
        sampled = self.sampled[place] == numbers
        base[sampled] = self.offset[place[sampled]]
        offset = latent_offset(base, self.training.labels)
        x = beside_features(torch.from_numpy(self.inputs.encoder.scaled(matrix)), offset, self.training.bins)
        relative = None if weight is None else (weight / self.weight).astype(np.float32)
        latent, around = squeezed(self.training.latent(labels)), squeezed(offset[:, : labels.shape[1]])
        return (x.numpy(), latent, relative, around if around.size else None)


def fit_stream(
    settings: Settings,
    rows: Any,
    target: str | Sequence[str],
    weight: str | None,
    drop: Sequence[str],
    sample: int,
    shuffle: int,
    *,
    checkpoint: str | Path | None,
    workers: RayWorkers | None,
) -> Model:
    """Train on a stream, calibrate and return a model; the arguments are those of `fit_batches`."""
    settings.check()
    _check_streamed(settings)
    if sample < 1 or shuffle < 0:
        raise ValueError(f"sample must be positive and shuffle not negative, got {sample} and {shuffle}")
    stream = as_row_stream(rows)
    if workers is None and isinstance(stream, RayRows):
        workers = RayWorkers.of_cluster()
    columns = StreamColumns.of(stream, target, weight, drop)
    seed = int(check_random_state(settings.random_state).randint(2**31 - 1))
    with (
        visible() if settings.verbose else nullcontext(),
        nullcontext() if workers is None else workers.connected(),
    ):
        return _StreamFit(settings, stream, columns, seed, workers).model(sample, shuffle, checkpoint)


def _check_streamed(settings: Settings) -> None:
    """Raise an error for parameters that a stream cannot serve."""
    if not settings.takes_tables:
        raise ValueError("a stream has rows of a table: choose a backbone for tables by its name")
    if settings.folds not in ("auto", 1):
        raise ValueError(f"folds={settings.folds}: a stream trains one network, so leave folds out")
    if settings.parts.resampling is not None:
        raise ValueError(
            f"method {settings.method!r} makes new rows from all rows, which a stream never has at once: "
            "choose another method"
        )


@dataclass(frozen=True, eq=False)
class _StreamFit:
    """The steps from a stream to a model."""

    settings: Settings
    stream: RowStream
    columns: StreamColumns
    seed: int
    workers: RayWorkers | None

    def model(self, sample: int, shuffle: int, checkpoint: str | Path | None) -> Model:
        """Read the stream twice, fit encodings and base to a sample, train on all rows and calibrate."""
        settings, columns, seed = self.settings, self.columns, self.seed
        settings.log("reading the stream for the first time, to sample rows")
        survey = self._surveyed(sample)
        inputs, base, offset, transforms = self._learnt(survey)
        settings.log("reading the labels of %d rows, to count them in bins", survey.rows)
        bins, weight = self._counted(survey, transforms)
        y, seen = (labels_of(rows, columns.targets) for rows in (survey.held, survey.sample))
        possible = np.concatenate([y, seen]).T
        labels = labels_of_targets(settings, bins, transforms, self._bounds(survey), possible, seen.T)
        training = Training(settings, inputs, base, labels, seed)
        rows = StreamedRows(training, inputs, self.stream, columns, survey, offset, weight, shuffle)
        encoded = inputs.encode(inputs.checked(survey.held[columns.inputs]))
        around = base.offset(encoded.matrix, len(encoded))
        held = training.examples(Prepared(encoded, y, np.ones(len(y)), around))
        select, confirm = halves(len(y), seed, 4 * MIN_HOLDOUT)
        start = torch.from_numpy(np.asarray(rows.encoded(survey.sample)[0]))
        network = training.network(start, np.arange(len(start)))
        if self.workers is not None:
            settings.log("training on %d workers of Ray", self.workers.workers)
        config = settings.train_config(rows.row_count, seed, streamed=True)
        learn = None if self.workers is None else self.workers.fit
        run = training.run(network, rows, held, select, config, checkpoint, learn)
        return training.model([run], Held.of(run.raw, held, select, confirm), columns.targets)

    def _by_parts(self, read: Callable[..., T]) -> list[T]:
        """Read the stream as a whole, or in parts that the machines of a cluster read at the same time.

        Tables in the memory of this process, and data sets of Ray that are not divided, are read as a whole.
        """
        if self.workers is None or isinstance(self.stream, (FrameRows, RayRows)):
            return [read()]
        shards = [(number, self.workers.workers) for number in range(self.workers.workers)]
        return self.workers.map(partial(_read_part, read), shards)

    def _surveyed(self, sample: int) -> Surveyed:
        """Sample the rows of the stream and find the range of their labels."""
        columns, keep = self.columns, sample + HELD_OUT
        first, *others = self._by_parts(
            partial(first_pass, self.stream, columns.all, columns.targets, keep, self.seed)
        )
        for other in others:
            first.merge(other)
        held = min(round(self.settings.validation_fraction * first.rows), HELD_OUT)
        if held < MIN_HOLDOUT:
            raise ValueError(
                f"the stream has {first.rows} rows, of which {held} would be held out, fewer than "
                f"{MIN_HOLDOUT}: read it as one table and call fit"
            )
        return first.finish(held, sample)

    def _counted(self, survey: Surveyed, transforms: Sequence[AnyTransform]) -> tuple[list[LabelBins], float]:
        """Return the bins of each target with its training labels, counted exactly, and their mean weight."""
        targets, weight = self.columns.targets, self.columns.weight
        bins = [
            bins_from_summary(transform, summary, **self.settings.given_bins)
            for transform, summary in zip(transforms, survey.summaries, strict=True)
        ]
        parts = self._by_parts(partial(second_pass, self.stream, targets, bins, survey.held_out, weight))
        counts = [np.sum(of_target, axis=0) for of_target in zip(*parts, strict=True)]
        if not counts[0].any():
            raise ValueError(f"the weight {weight!r} is 0 in every row: there is nothing to train on")
        return [counted(b, count) for b, count in zip(bins, counts, strict=True)], mean_weight(counts[0])

    def _learnt(self, survey: Surveyed) -> tuple[TableInputs, Base, Floats, list[AnyTransform]]:
        """Fit encodings and base to the sample; return what `fit_base` does with the inputs."""
        settings, columns = self.settings, self.columns
        inputs, X = TableInputs(settings.conformal_by).see(survey.sample[columns.inputs])
        inputs = inputs.fit(X)
        labels, weight = labels_of(survey.sample, columns.targets), weights_of(survey.sample, columns.weight)
        ranges = zip(labels.T, survey.ends, strict=True)
        choices = [candidates(settings.target_transform, np.append(*column)) for column in ranges]
        makers = settings.base_makers(len(labels), given=False)
        if makers:
            settings.log("fitting the base on a sample of %d of %d rows", len(labels), survey.rows)
        fold = deal_folds(labels[:, 0], self.seed, 2 if len(labels) >= FEW_FOLDS_FROM else FOLDS)
        about = labels, np.ones(len(labels)) if weight is None else weight, fold, self.seed, choices
        return inputs, *fit_base(makers, inputs.encode(X).matrix, *about)

    def _bounds(self, survey: Surveyed) -> list[Bounds]:
        """Return the bounds of each target; a label beyond them is an error."""
        all_bounds = bounds_of_targets(self.settings.bounds, survey.ends)
        for name, bounds, (low, high) in zip(self.columns.targets, all_bounds, survey.ends, strict=True):
            if low < bounds.low or high > bounds.high:
                raise ValueError(
                    f"the target {name!r} lies between {low:.9g} and {high:.9g}, beyond the bounds "
                    f"{bounds.low:g} and {bounds.high:g}: correct its labels or widen the bounds"
                )
        return all_bounds


def _read_part(read: Callable[..., T], shard: Shard) -> T:
    return read(shard=shard)
