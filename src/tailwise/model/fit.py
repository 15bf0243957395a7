"""From labelled rows to a fitted model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_consistent_length

from tailwise.calibration.calibration import Labels
from tailwise.distributions.transform import AnyTransform
from tailwise.distributions.truncation import Bounds, bounds_of
from tailwise.labels.bins import LabelBins
from tailwise.labels.support import LabelSupport
from tailwise.model.base import Base, MakeBase, fit_base, given_predictions
from tailwise.model.families import DISTINCT, joined, started
from tailwise.model.inputs import Inputs, column_of
from tailwise.model.model import Model
from tailwise.model.settings import Settings, bins_of, candidates
from tailwise.model.split import MIN_HOLDOUT, Split, check_row_count, group_codes, latest_rows
from tailwise.model.training import Held, Prepared, Training, calibration_recipe, train_networks
from tailwise.tables.inputs import checked_eval_set, checked_targets, row_count, take_rows, target_names
from tailwise.tables.rows import halves, merge_equal_rows
from tailwise.training.loop import visible

QUANTILES = 2001
"""Quantiles of the training labels that a model keeps, for a constant to compare with."""
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

    @classmethod
    def of(
        cls,
        X: Any,
        y: Any,
        *,
        weight: ArrayLike | None = None,
        base: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        targets: int | None = None,
    ) -> Rows:
        """Check labels, and what is given beside them, against the rows of X."""
        y = checked_labels(X, y, targets)
        counted = _check_sample_weight(weight, y, dtype=np.float64, ensure_non_negative=True)
        given = np.empty((len(y), 0)) if base is None else given_predictions(base, y.shape)
        return cls(X, y, counted, given, None if groups is None else group_codes(groups, len(y)))

    def rows(self, rows: Index) -> Rows:
        """Return some of the rows, in that order. rows: (M,)"""
        X = self.X if np.array_equal(rows, np.arange(len(self.y))) else take_rows(self.X, rows)
        groups = None if self.groups is None else self.groups[rows]
        return Rows(X, self.y[rows], self.weight[rows], self.base[rows], groups)

    def merged(self) -> Rows:
        """Return the rows with equal ones merged into one of a larger weight."""
        told_apart = [self.y, self.base] if self.groups is None else [self.y, self.base, self.groups]
        labels = np.column_stack(told_apart).astype(np.float64)
        rows, weight = merge_equal_rows(self.X, labels, self.weight)
        return replace(self.rows(rows), weight=weight)


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
    names = target_names(y) or []
    table = Rows.of(X, y, weight=sample_weight, base=base_prediction, groups=group_of)
    check_row_count(len(table.y))
    bounds = bounds_of_targets(settings.bounds, table.y.T)
    for ends, column in zip(bounds, table.y.T, strict=True):
        ends.check(column)
    makers = settings.base_makers(len(table.y), given=base_prediction is not None)
    rows, watched = _apart(settings, inputs, table, eval_set, time_of)
    seed = int(check_random_state(settings.random_state).randint(2**31 - 1))
    before, rows = len(rows.y), rows.merged()
    split = Split.deal(
        rows.y[:, 0],
        seed,
        folds=1 if settings.folds == "auto" and settings.takes_pictures else settings.folds,
        share=settings.validation_fraction,
        groups=rows.groups,
        alone=watched is not None,
    )

    if start is None:
        prepared = _learnt(settings, makers, inputs, rows, split, seed)
    else:
        prepared = _taken_over(start, inputs, rows)
    inputs, base, transforms, bins, data = prepared
    labels = labels_of_targets(settings, bins, transforms, bounds, table.y.T, rows.y.T, rows.weight)
    valid = None
    if watched is not None:
        seen = inputs.encode(watched.X)
        valid = Prepared(seen, watched.y, watched.weight, base.offset(seen.matrix, len(seen)))

    training = Training(settings, inputs, base, labels, seed, started(start, "around"))
    with visible() if settings.verbose else nullcontext():
        runs, held = train_networks(training, data, split, valid, checkpoint)
        pools = settings.pool and inputs.is_table and not base.is_identity
        if pools and len(rows.y) >= DISTINCT * before:
            settings.log("networks without the base")
            alone = training.without_base(started(start, "alone"))
            file = None if checkpoint is None else f"{checkpoint}.alone"
            others = train_networks(alone, data, split, valid, file)
            training, runs, held = joined(training, runs, held, *others)
    apart = watched is not None
    return training.model(runs, held, names, held_out=apart or split.held_out, unseen=apart)


def _apart(
    settings: Settings, inputs: Inputs, table: Rows, eval_set: tuple[Any, Any] | None, time: Any
) -> tuple[Rows, Rows | None]:
    """Return the rows to train on, and those to stop and calibrate by if the user says which these are."""
    given = bool(table.base.shape[1])
    if time is not None and (given or eval_set is not None):
        raise ValueError("time cannot be used with eval_set or base_prediction: leave one out")
    if eval_set is not None:
        if given:
            raise ValueError("eval_set cannot be used with base_prediction: leave one of them out")
        X, y = checked_eval_set(eval_set)
        return table, Rows.of(inputs.checked(X), y, targets=table.y.shape[1])
    if time is None:
        return table, None
    early, late = latest_rows(time, len(table.y), settings.validation_fraction)
    return table.rows(early), table.rows(late)


def _learnt(
    settings: Settings, makers: Sequence[MakeBase], inputs: Inputs, rows: Rows, split: Split, seed: int
) -> tuple[Inputs, Base, list[AnyTransform], list[LabelBins], Prepared]:
    """Fit encodings, base, target transforms and label bins; return them with the rows for networks."""
    trained = rows.rows(split.trained)
    inputs = inputs.fit(trained.X)
    encoded = inputs.encode(rows.X)
    choices = [candidates(settings.target_transform, column) for column in rows.y.T]
    if makers:
        settings.log("fitting the base to %d rows", len(rows.y))
    about = rows.y, rows.weight, split.fold, seed, choices
    base, offset, transforms = fit_base(makers, encoded.matrix, *about)
    bins = [
        bins_of(transform, column, trained.weight, **settings.given_bins)
        for transform, column in zip(transforms, trained.y.T, strict=True)
    ]
    if rows.base.shape[1]:
        base, offset = Base(given=len(bins)), rows.base
    return inputs, base, transforms, bins, Prepared(encoded, rows.y, rows.weight, offset)


def _taken_over(
    start: Model, inputs: Inputs, rows: Rows
) -> tuple[Inputs, Base, list[AnyTransform], list[LabelBins], Prepared]:
    """Return what `_learnt` does, from a model to go on from; other targets or columns are an error."""
    for name, mine, its in (
        ("number of targets", rows.y.shape[1], len(start.targets)),
        ("columns", inputs.columns.described, start.inputs.columns.described),
    ):
        if mine != its:
            raise ValueError(f"init_model differs in its {name}: {its!r:.200}, not {mine!r:.200}")
    inputs = replace(start.table, groups=inputs.groups)
    encoded = inputs.encode(rows.X)
    offset = start.base.offset(encoded.matrix, len(encoded), rows.base if rows.base.shape[1] else None)
    transforms = [target.labels.transform for target in start.targets]
    return inputs, start.base, transforms, start.bins, Prepared(encoded, rows.y, rows.weight, offset)


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
    transforms: Sequence[AnyTransform],
    bounds: Sequence[Bounds],
    possible: Floats,
    trained: Floats,
    weight: Floats | None = None,
) -> tuple[Labels, ...]:
    """Return what is known of the labels of each target.

    `possible` are labels that occur, be it in held-out rows; `trained` and `weight` those of training rows.
    possible: (T, M), trained: (T, N), weight: (N,)
    """
    levels = np.linspace(0, 1, QUANTILES)
    targets = zip(bins, transforms, bounds, possible, trained, strict=True)
    return tuple(
        Labels(
            of_target,
            ends,
            LabelSupport.from_labels(values) if settings.keep_values else LabelSupport(),
            settings.many,
            settings.few,
            transform,
            quantiles=np.quantile(y, levels, method="inverted_cdf", weights=weight),
        )
        for of_target, transform, ends, values, y in targets
    )
