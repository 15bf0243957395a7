"""Which columns matter: how much worse a model gets when the values of a column are shuffled."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from tailwise.calibration.calibration import Predicted
from tailwise.estimator import TailRegressor
from tailwise.explanations.columnwise import FIGURES, MOST_PREDICTIONS, ColumnwiseModel, Floats, sampled
from tailwise.labels.bins import checked_labels
from tailwise.labels.prior import rarest
from tailwise.lookup import check_name

logger = logging.getLogger(__name__)
LOSSES, SPREADS = ("error", "crps"), ("width", "std")
"""A loss is compared by its increase. A width or a standard deviation is no loss: shuffling makes some larger
and others smaller, so it is compared by the mean of the absolute changes."""


def _measure(name: str, predicted: Predicted, y: Floats, coverage: float) -> Floats:
    if name == "crps":
        return np.asarray(predicted.distribution.crps(torch.from_numpy(y)).double().numpy())
    figure = FIGURES[{"error": "prediction"}.get(name, name)](predicted, coverage)
    return np.asarray(np.abs(figure - y)) if name == "error" else figure


def importance(
    model: TailRegressor,
    X: Any,
    y: Any,
    *,
    measures: Sequence[str] = ("error", "width"),
    repeats: int = 5,
    max_rows: int = 2000,
    target: int | str | None = None,
    emphasis: float | None = None,
    label_prior: Any = None,
    coverage: float = 0.9,
    random_state: int = 0,
) -> pd.DataFrame:
    """Return how much each column matters for the prediction and for its uncertainty.

    The values of one column are shuffled over the rows, and everything else stays as it is. X and y should be
    rows that the model was not trained on; y has the labels of one target. `measures` are

    - ``"error"``: by how much the mean absolute error increases;
    - ``"crps"``: by how much the mean CRPS of the predicted distribution increases;
    - ``"width"``: by how much the width of a row's interval changes, up or down, on average;
    - ``"std"``: the same for the predicted standard deviation.

    The table has a row for each measure, group of labels and column, with the most important column first:
    ``measure``, ``labels`` (``"all"``, or ``"rare"`` for the 15% of labels that were rarest in training),
    ``column``, ``importance`` (mean over `repeats` shuffles), ``spread`` (standard deviation over them),
    ``reference`` (the measure's mean on the real table) and ``rows``. At most `max_rows` rows, chosen at
    random, are used, and fewer, with a warning, where that is more than a million predictions. An importance
    below twice its spread may be chance. Two columns that say the same share their importance: shuffling one
    leaves the other.
    """
    for name in measures:
        check_name("measure", name, (*LOSSES, *SPREADS))
    if repeats < 2:
        raise ValueError(f"repeats must be at least 2 to show a spread, got {repeats}")
    columns = ColumnwiseModel(model, target, emphasis, label_prior, coverage)
    matrix, labels = columns.encode(X), checked_labels(y)
    if len(labels) != len(matrix):
        raise ValueError(f"X has {len(matrix)} rows and y has {len(labels)}")
    most = max(MOST_PREDICTIONS // (repeats * len(columns.places)), 2)
    if most < min(max_rows, len(labels)):
        warnings.warn(f"with {len(columns.places)} columns only {most} rows are shuffled", stacklevel=2)
    rng = np.random.default_rng(random_state)
    rare = rarest(labels, columns.model.targets[columns.target].labels.density)
    rows = sampled(len(labels), min(max_rows, most), rng)
    matrix, labels, rare = matrix[rows], labels[rows], rare[rows]
    groups = {"all": np.ones(len(labels), bool), **({"rare": rare} if rare.any() else {})}

    def figures(encoded: Floats) -> dict[str, Floats]:
        """Each measure of each row, for one or more tables below one another. (R * N, F) -> (R, N)"""
        predicted, truth = columns.predicted(encoded), np.tile(labels, len(encoded) // len(labels))
        return {m: _measure(m, predicted, truth, coverage).reshape(-1, len(labels)) for m in measures}

    before = figures(matrix)
    orders = np.concatenate([rng.permutation(len(labels)) for _ in range(repeats)])
    lines = []
    for done, (column, places) in enumerate(columns.places.items(), start=1):
        after = before
        if places:
            shuffled = np.tile(matrix, (repeats, 1))
            shuffled[:, places] = matrix[orders][:, places]
            after = figures(shuffled)
        for name in measures:
            changes = after[name] - before[name]
            if name in SPREADS:
                changes = np.abs(changes)
            for group, chosen in groups.items():
                means = np.broadcast_to(changes[:, chosen].mean(axis=1), repeats)
                found = float(means.mean()), float(means.std(ddof=1)), float(before[name][0][chosen].mean())
                lines.append((name, group, column, *found, int(chosen.sum())))
        logger.info("shuffled %d of %d columns", done, len(columns.places))
    names = ["measure", "labels", "column", "importance", "spread", "reference", "rows"]
    table = pd.DataFrame(lines, columns=names)
    order = {name: place for place, name in enumerate((*measures, *groups))}
    by = ["measure", "labels", "importance"]
    return table.sort_values(
        by, key=lambda c: -c if c.name == "importance" else c.map(order), kind="stable", ignore_index=True
    )
