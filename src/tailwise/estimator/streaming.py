"""How `TailRegressor` is fitted on tables larger than memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import torch
from sklearn.utils import check_random_state

from tailwise.core.labels import LabelBins
from tailwise.core.lookup import check_name
from tailwise.core.support import LabelSupport
from tailwise.core.truncation import Bounds
from tailwise.data.splits import halves
from tailwise.data.streams.label_sketch import BinCounts, labels_of, weights_of
from tailwise.data.streams.mixing import mixed
from tailwise.data.streams.passes import Surveyed, first_pass, second_pass
from tailwise.data.streams.ray_rows import RayRows
from tailwise.data.streams.row_stream import SOURCE, FrameRows, RowStream, Shard, as_row_stream
from tailwise.data.tables.quick_encoding import QuickEncoder
from tailwise.estimator.bases import FOLDS
from tailwise.estimator.fitting import FitRows
from tailwise.estimator.holdout import MIN_HOLDOUT
from tailwise.estimator.preparing import Floats, Preparing
from tailwise.estimator.recalibration import Recalibration
from tailwise.learning.batches import in_background
from tailwise.learning.loop import fit
from tailwise.learning.progress import visible
from tailwise.learning.ray_workers import RayWorkers
from tailwise.methods import get_method

if TYPE_CHECKING:
    import pandas as pd

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
        targets, names = [target] if isinstance(target, str) else list(target), list(stream.columns)
        for what, column in [
            *(("target", t) for t in targets),
            ("weight", weight),
            *(("drop", d) for d in drop),
        ]:
            if column is not None:
                check_name(f"column of {what}", column, names)
            if column is not None and what != "drop" and stream.columns[column] not in ("number", "boolean"):
                raise ValueError(
                    f"the {what} {column!r} holds {stream.columns[column]}: choose a column of numbers"
                )
        others = [*targets, *drop, *([] if weight is None else [weight])]
        twice = next((name for name in others if others.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"column {twice!r} is named twice among target, weight and drop")
        odd = next((n for n in names if stream.columns[n] == "other" and n not in others), None)
        if odd is not None:
            raise ValueError(f"column {odd!r} holds lists, records or durations: leave it out with drop")
        inputs = [name for name in names if name not in others]
        if not inputs:
            raise ValueError("the stream has no column besides the target: there is nothing to predict from")
        return cls(inputs, targets, weight)


def _by_parts(read: Callable[..., T], stream: RowStream, workers: RayWorkers | None) -> list[T]:
    """Read a stream as a whole, or in parts that the machines of a cluster read at the same time.

    Tables in the memory of this process, and data sets of Ray that are not divided, are read as a whole.
    """
    if workers is None or isinstance(stream, (FrameRows, RayRows)):
        return [read()]
    shards = [(number, workers.workers) for number in range(workers.workers)]
    return workers.map(partial(_read_part, read), shards)


def _read_part(read: Callable[..., T], shard: Shard) -> T:
    return read(shard=shard)


class StreamedRows:
    """The training rows of a stream as batches for the training loop, encoded on their way.

    Rows of the sample that the base was fitted on get their out-of-fold prediction.
    """

    def __init__(
        self,
        model: Preparing,
        stream: RowStream,
        columns: StreamColumns,
        survey: Surveyed,
        offset: Floats | None,
        weight: float,
        shuffle: int,
    ) -> None:
        """`offset` has base predictions of `survey.sample`; `weight` is the mean weight of training rows."""
        assert model.preprocessor_ is not None
        self.model, self.stream, self.columns = model, stream, columns
        self.row_count, self.held_out = survey.rows - len(survey.held), survey.held_out
        self.encoder, self.weight, self.shuffle = QuickEncoder(model.preprocessor_), weight, shuffle
        numbers = survey.sample.index.to_numpy()
        order = np.argsort(numbers)
        self.known, self.offset = numbers[order], None if offset is None else offset[order]

    def fingerprint(self) -> str:
        """Return what the order of the rows depends on; label counts say whether rows are the same."""
        return f"{', '.join(self.columns.all)} mixed in {self.shuffle}"

    def shard(self, number: int, shards: int, size: int, seed: int) -> Iterator[Any]:
        """Return the batches of one shard in an epoch; a thread makes some of them in advance."""
        return in_background(self._batches(seed if self.shuffle else None, size, (number, shards)))

    def _batches(self, seed: int | None, size: int, shard: tuple[int, int]) -> Iterator[Any]:
        chunks = self.stream.chunks(self.columns.all, shard=shard, seed=seed)
        parts = (part for part in map(self.encoded, chunks) if len(part[1]))
        for batch in mixed(parts, size, self.shuffle, seed):
            yield tuple(None if array is None else torch.from_numpy(array) for array in batch)

    def encoded(self, chunk: pd.DataFrame) -> tuple[Any, ...]:
        """Return inputs, labels, weights and offsets of the training rows of a chunk."""
        train = ~self.held_out(chunk)
        rows = chunk if train.all() else chunk[train]
        if len(rows) == 0:
            return (np.empty((0, 0), np.float32), np.empty(0), None, None)
        labels, weight = labels_of(rows, self.columns.targets), weights_of(rows, self.columns.weight)
        labels = labels[:, 0] if labels.shape[1] == 1 else labels
        model = self.model
        assert model.preprocessor_ is not None
        try:
            matrix = self.encoder.matrix(rows[self.columns.inputs])
            offset = model._offset(matrix, len(rows), None)
        except ValueError as error:
            raise ValueError(f"{chunk.attrs.get(SOURCE, 'the stream')}: {error}") from None
        if offset is not None and self.offset is not None:
            numbers = rows.index.to_numpy()
            place = np.searchsorted(self.known, numbers).clip(max=len(self.known) - 1)
            sampled = self.known[place] == numbers
            offset[sampled] = self.offset[place[sampled]]
        x = model._inputs(torch.from_numpy(model.preprocessor_.scaled(matrix)), offset)
        relative = None if weight is None else (weight / self.weight).astype(np.float32)
        return (x.numpy(), labels, relative, offset)


class Streaming(Recalibration):
    """Fitting on rows that come in chunks."""

    def fit_batches(
        self,
        rows: Any,
        target: str | Sequence[str],
        *,
        weight: str | None = None,
        drop: Sequence[str] = (),
        sample: int = SAMPLE,
        shuffle: int = SHUFFLE,
        checkpoint: str | Path | None = None,
        workers: RayWorkers | None = None,
    ) -> Self:
        """Train on a table that does not fit in memory, calibrate and return self.

        `rows` is a folder of Parquet files, a file, a list of files, a list of DataFrames, a function that
        returns an iterable of DataFrames each time it is called, a `ray.data.Dataset`, or a
        `tailwise.data.streams.RowStream`.
        `target` names the column of labels, or several. `weight` names a column of row weights. All columns
        but these and those of `drop` are inputs.

        Two passes come before training. The first keeps a random sample of `sample` training rows and the
        held-out rows (`validation_fraction` of all, at most 100,000). The second counts the labels in their
        bins, exactly. Encodings and the base are fitted on the sample. Then one network trains on all rows
        that are not held out, mixed in a buffer of `shuffle` rows; with 0, rows keep their order. With
        `checkpoint`, training is saved there after every epoch and resumed from there.

        With `workers`, the network trains in processes of a Ray cluster, each on its part of the rows. A
        `ray.data.Dataset` always trains in the cluster that it belongs to, by default on all its GPUs, or
        without a GPU on all its processors but one.
        """
        self._validate_params()
        self._check_parameters()
        self._check_streamed()
        if sample < 1 or shuffle < 0:
            raise ValueError(f"sample must be positive and shuffle not negative, got {sample} and {shuffle}")
        stream = as_row_stream(rows)
        if workers is None and isinstance(stream, RayRows):
            workers = RayWorkers.of_cluster()
        columns = StreamColumns.of(stream, target, weight, drop)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with (
            visible() if self.verbose else nullcontext(),
            nullcontext() if workers is None else workers.connected(),
        ):
            self._log("reading the stream for the first time, to sample rows")
            survey = self._surveyed(stream, columns, sample, seed, workers)
            self._log("reading the labels of %d rows, to count them in bins", survey.rows)
            read = partial(
                second_pass, stream, columns.targets, self._bins_of(survey), survey, columns.weight
            )
            counts, *others = _by_parts(read, stream, workers)
            for other in others:
                for own, its in zip(counts, other, strict=True):
                    own.merge(its)
            self._take_labels(counts, columns)
            data = self._streamed_rows(stream, columns, survey, counts, shuffle, seed)
            self._train_streamed(data, survey, columns, counts, seed, checkpoint, workers)
        return self

    def _check_streamed(self) -> None:
        """Raise an error for parameters that a stream cannot serve."""
        if self._raw_inputs:
            raise ValueError("a stream has rows of a table: choose a backbone for tables by its name")
        if self.folds not in ("auto", 1):
            raise ValueError(f"folds={self.folds}: a stream trains one network, so leave folds out")
        if get_method(self.method).parts.with_options(**(self.method_options or {})).resampling is not None:
            raise ValueError(
                f"method {self.method!r} makes new rows from all rows, which a stream never has at once: "
                "choose another method"
            )

    def _surveyed(
        self, stream: RowStream, columns: StreamColumns, sample: int, seed: int, workers: RayWorkers | None
    ) -> Surveyed:
        """Sample the rows of a stream and sketch their labels."""
        read = partial(first_pass, stream, columns.all, columns.targets, sample + HELD_OUT, seed)
        found, *others = _by_parts(read, stream, workers)
        for other in others:
            found.merge(other)
        held = min(round(self.validation_fraction * found.rows), HELD_OUT)
        if held < MIN_HOLDOUT:
            raise ValueError(
                f"the stream has {found.rows} rows, of which {held} would be held out, fewer than "
                f"{MIN_HOLDOUT}: read it as one table and call fit"
            )
        survey = found.finish(held, sample)
        self.target_names_, self.n_targets_ = columns.targets, len(columns.targets)
        return survey

    def _bins_of(self, survey: Surveyed) -> list[LabelBins]:
        """Bins of each target, not counted yet."""
        return [LabelBins.from_summary(summary, **self._given_bins) for summary in survey.summaries]

    def _take_labels(self, counts: Sequence[BinCounts], columns: StreamColumns) -> None:
        """Put exact counts into the bins."""
        if counts[0].rows.sum() == 0:
            raise ValueError(f"the weight {columns.weight!r} is 0 in every row: there is nothing to train on")
        bins = [count.counted(weighted=columns.weight is not None) for count in counts]
        self.bins_ = bins[0] if self.n_targets_ == 1 else bins

    def _streamed_rows(
        self,
        stream: RowStream,
        columns: StreamColumns,
        survey: Surveyed,
        counts: Sequence[BinCounts],
        shuffle: int,
        seed: int,
    ) -> StreamedRows:
        """Fit encodings and base on the sample; return the training rows as batches."""
        self._validated(survey.held[columns.inputs], reset=True)
        X = self._validated(survey.sample[columns.inputs], reset=False)
        self._find_interval_groups(X)
        self.base_given_ = False
        self._fit_preprocessing(X, np.arange(len(X)))
        _, matrix = self._features(X)
        labels = self._some_labels(survey.sample, columns)
        weight = weights_of(survey.sample, columns.weight)
        make = self._resolved_base(len(X), None)
        if make is not None:
            self._log("fitting the base on a sample of %d of %d rows", len(X), survey.rows)
        folds = 2 if len(X) >= FEW_FOLDS_FROM else FOLDS
        ones = np.ones(len(X)) if weight is None else weight
        self.base_, offset = self._fitted_base(make, matrix, labels, ones, None, seed, folds)
        return StreamedRows(self, stream, columns, survey, offset, counts[0].mean_weight, shuffle)

    def _some_labels(self, table: pd.DataFrame, columns: StreamColumns) -> Floats:
        labels = labels_of(table, columns.targets)
        return labels[:, 0] if self.n_targets_ == 1 else labels

    def _train_streamed(
        self,
        data: StreamedRows,
        survey: Surveyed,
        columns: StreamColumns,
        counts: Sequence[BinCounts],
        seed: int,
        checkpoint: str | Path | None,
        workers: RayWorkers | None,
    ) -> None:
        """Train one network on a stream, and calibrate it on the held-out rows."""
        known = self._stream_bounds(survey, columns), self._stream_supports(survey, counts)
        held = self._held_rows(survey, columns)
        select, confirm = halves(len(held.labels), seed, 4 * MIN_HOLDOUT)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            start = torch.from_numpy(np.asarray(data.encoded(survey.sample)[0]))
            network = self._build(start, np.arange(len(start)))
            valid = held.rows(select).tensors(weighted=False)
            config = self._train_config(data.row_count, seed, streamed=True)
            if workers is None:
                shown = None if self.verbose else False
                history = fit(network, data, valid, config, checkpoint=checkpoint, progress=shown)
            else:
                self._log("training on %d workers of Ray", workers.workers)
                history = workers.fit(network, data, valid, config, checkpoint=checkpoint)
        self.networks_, self.histories_ = [network], [history]
        self.held_out_, self.unseen_, self.recalibrated_ = True, len(confirm) < len(held.labels), 0
        raw = self._network_prediction(network, held.features, held.offset)
        self._calibrate(raw, held, select, confirm, *known)

    def _held_rows(self, survey: Surveyed, columns: StreamColumns) -> FitRows:
        """The held-out rows as the network takes them."""
        X = self._validated(survey.held[columns.inputs], reset=False)
        held = self._watched(X, self._some_labels(survey.held, columns))
        return held._replace(features=self._inputs(held.features, held.offset))

    def _stream_bounds(self, survey: Surveyed, columns: StreamColumns) -> list[Bounds | None]:
        """Bounds of each target; a label beyond them is an error."""
        ends = [np.array([sketch.low, sketch.high]) for sketch in survey.sketches]
        each = self._bounds_of(ends)
        for name, bounds, (low, high) in zip(columns.targets, each, ends, strict=True):
            if bounds is not None and (low < bounds.low or high > bounds.high):
                raise ValueError(
                    f"the target {name!r} lies between {low:.9g} and {high:.9g}, beyond the bounds "
                    f"{bounds.low:g} and {bounds.high:g}: correct its labels or widen the bounds"
                )
        return each

    def _stream_supports(self, survey: Surveyed, counts: Sequence[BinCounts]) -> list[LabelSupport | None]:
        each = zip(counts, survey.sketches, strict=True)
        return [count.support(sketch) if self.keep_values else None for count, sketch in each]
