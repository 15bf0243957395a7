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

from tailwise.calibration.calibration import Labels
from tailwise.distributions.truncation import Bounds
from tailwise.labels.bins import LabelBins
from tailwise.labels.support import LabelSupport
from tailwise.lookup import check_name
from tailwise.model.base import FOLDS, Base, deal_folds, fit_base
from tailwise.model.fit import (
    Examples,
    Held,
    bounds_of_targets,
    build_network,
    calibration_recipe,
    computing,
)
from tailwise.model.inputs import TableInputs
from tailwise.model.model import Model, Record, beside_features, network_prediction, ready, squeezed
from tailwise.model.settings import Settings
from tailwise.model.split import MIN_HOLDOUT
from tailwise.streams.label_sketch import BinCounts, labels_of, weights_of
from tailwise.streams.mixing import mixed
from tailwise.streams.passes import Surveyed, first_pass, second_pass
from tailwise.streams.ray_rows import RayRows
from tailwise.streams.row_stream import SOURCE, FrameRows, RowStream, Shard, as_row_stream
from tailwise.tables.quick_encoding import QuickEncoder
from tailwise.tables.split import halves
from tailwise.training.batches import in_background
from tailwise.training.loop import fit as train
from tailwise.training.progress import visible
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


@dataclass(eq=False)
class StreamedRows:
    """The training rows of a stream as batches for the training loop, encoded on their way.

    Rows of the sample that the base was fitted on get their out-of-fold prediction.
    """

    inputs: TableInputs
    base: Base
    bins: list[LabelBins]
    stream: RowStream
    columns: StreamColumns
    survey: Surveyed
    offset: Floats | None
    """Out-of-fold predictions for `survey.sample`. (n, T)"""
    weight: float
    """Mean weight of training rows."""
    shuffle: int

    def __post_init__(self) -> None:
        self.row_count = self.survey.rows - len(self.survey.held)
        self.encoder = QuickEncoder(self.inputs.encoder)
        numbers = self.survey.sample.index.to_numpy()
        order = np.argsort(numbers)
        self.known = numbers[order]
        self.offset = None if self.offset is None else self.offset[order]

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
            matrix = self.encoder.matrix(rows[self.columns.inputs])
            offset = self.base.offset(matrix, len(rows), None)
        except ValueError as error:
            raise ValueError(f"{chunk.attrs.get(SOURCE, 'the stream')}: {error}") from None
        if offset is not None and self.offset is not None:
            numbers = rows.index.to_numpy()
            place = np.searchsorted(self.known, numbers).clip(max=len(self.known) - 1)
            sampled = self.known[place] == numbers
            offset[sampled] = self.offset[place[sampled]]
        x = beside_features(torch.from_numpy(self.inputs.encoder.scaled(matrix)), offset, self.bins)
        relative = None if weight is None else (weight / self.weight).astype(np.float32)
        return (x.numpy(), squeezed(labels), relative, None if offset is None else squeezed(offset))


def fit_stream(
    settings: Settings,
    rows: Any,
    target: str | Sequence[str],
    *,
    weight: str | None = None,
    drop: Sequence[str] = (),
    sample: int = SAMPLE,
    shuffle: int = SHUFFLE,
    checkpoint: str | Path | None = None,
    workers: RayWorkers | None = None,
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
        settings.log("reading the stream for the first time, to sample rows")
        survey = _surveyed(settings, stream, columns, sample, seed, workers)
        settings.log("reading the labels of %d rows, to count them in bins", survey.rows)
        counts = _counted(settings, stream, columns, survey, workers)
        data = _training_rows(settings, stream, columns, survey, counts, shuffle, seed)
        return _trained(settings, data, counts, seed, checkpoint, workers)


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


def _surveyed(
    settings: Settings,
    stream: RowStream,
    columns: StreamColumns,
    sample: int,
    seed: int,
    workers: RayWorkers | None,
) -> Surveyed:
    """Sample the rows of a stream and sketch their labels."""
    read = partial(first_pass, stream, columns.all, columns.targets, sample + HELD_OUT, seed)
    found, *others = _by_parts(read, stream, workers)
    for other in others:
        found.merge(other)
    held = min(round(settings.validation_fraction * found.rows), HELD_OUT)
    if held < MIN_HOLDOUT:
        raise ValueError(
            f"the stream has {found.rows} rows, of which {held} would be held out, fewer than "
            f"{MIN_HOLDOUT}: read it as one table and call fit"
        )
    return found.finish(held, sample)


def _counted(
    settings: Settings,
    stream: RowStream,
    columns: StreamColumns,
    survey: Surveyed,
    workers: RayWorkers | None,
) -> list[BinCounts]:
    """Count the labels of each target in bins, exactly."""
    bins = [LabelBins.from_summary(summary, **settings.given_bins) for summary in survey.summaries]
    read = partial(second_pass, stream, columns.targets, bins, survey, columns.weight)
    counts, *others = _by_parts(read, stream, workers)
    for other in others:
        for own, its in zip(counts, other, strict=True):
            own.merge(its)
    if counts[0].rows.sum() == 0:
        raise ValueError(f"the weight {columns.weight!r} is 0 in every row: there is nothing to train on")
    return list(counts)


def _training_rows(
    settings: Settings,
    stream: RowStream,
    columns: StreamColumns,
    survey: Surveyed,
    counts: Sequence[BinCounts],
    shuffle: int,
    seed: int,
) -> StreamedRows:
    """Fit encodings and base on the sample; return the training rows as batches."""
    known, X = TableInputs(settings.conformal_by).see(survey.sample[columns.inputs])
    known = known.fit(X)
    matrix, labels = known.encode(X).matrix, labels_of(survey.sample, columns.targets)
    weight = weights_of(survey.sample, columns.weight)
    make = settings.base_maker(len(X), given=False)
    if make is not None:
        settings.log("fitting the base on a sample of %d of %d rows", len(X), survey.rows)
    fold = deal_folds(labels[:, 0], seed, 2 if len(X) >= FEW_FOLDS_FROM else FOLDS)
    ones = np.ones(len(X)) if weight is None else weight
    base, offset = fit_base(make, matrix, labels, ones, fold, seed)
    bins = [count.counted(weighted=columns.weight is not None) for count in counts]
    return StreamedRows(known, base, bins, stream, columns, survey, offset, counts[0].mean_weight, shuffle)


def _trained(
    settings: Settings,
    data: StreamedRows,
    counts: Sequence[BinCounts],
    seed: int,
    checkpoint: str | Path | None,
    workers: RayWorkers | None,
) -> Model:
    """Train one network on a stream, and calibrate it on the held-out rows."""
    survey, inputs = data.survey, data.inputs
    each = zip(data.bins, _bounds(settings, data), _supports(settings, survey, counts), strict=True)
    known = [Labels(b, ends, values, settings.many, settings.few) for b, ends, values in each]
    rows = inputs.encode(inputs.checked(survey.held[data.columns.inputs]))
    labels = labels_of(survey.held, data.columns.targets)
    offset = data.base.offset(rows.matrix, len(rows), None)
    held = Examples.of(rows, labels, np.ones(len(labels)), offset, data.bins, table=True)
    select, confirm = halves(len(labels), seed, 4 * MIN_HOLDOUT)
    start = torch.from_numpy(np.asarray(data.encoded(survey.sample)[0]))
    every = np.arange(len(start))
    network = build_network(settings, start, every, data.bins, seed, offset=offset is not None)
    valid = held.rows(select).tensors(weighted=False)
    config = settings.train_config(data.row_count, seed, streamed=True)
    if workers is None:
        shown = None if settings.verbose else False
        history = train(network, data, valid, config, checkpoint=checkpoint, progress=shown)
    else:
        settings.log("training on %d workers of Ray", workers.workers)
        history = workers.fit(network, data, valid, config, checkpoint=checkpoint)
    network = ready(network, table=True)
    recipe = calibration_recipe(settings, [network], inputs)
    with computing(table=True):
        raw = network_prediction(network, held.x, held.offset, table=True, device=settings.device)
        targets = Held(raw, held, select, confirm).calibrations(known, recipe)
    return Model(
        inputs,
        data.base,
        (network,),
        targets,
        tuple(data.columns.targets),
        Record((history,), held_out=True, unseen=len(confirm) < len(labels)),
        settings.device,
    )


def _bounds(settings: Settings, data: StreamedRows) -> list[Bounds]:
    """Return the bounds of each target; a label beyond them is an error."""
    ends = [np.array([sketch.low, sketch.high]) for sketch in data.survey.sketches]
    each = bounds_of_targets(settings.bounds, ends)
    for name, bounds, (low, high) in zip(data.columns.targets, each, ends, strict=True):
        if low < bounds.low or high > bounds.high:
            raise ValueError(
                f"the target {name!r} lies between {low:.9g} and {high:.9g}, beyond the bounds "
                f"{bounds.low:g} and {bounds.high:g}: correct its labels or widen the bounds"
            )
    return each


def _supports(settings: Settings, survey: Surveyed, counts: Sequence[BinCounts]) -> list[LabelSupport]:
    """Return the values that the labels of each target can have."""
    each = zip(counts, survey.sketches, strict=True)
    return [count.support(sketch) if settings.keep_values else LabelSupport() for count, sketch in each]
