"""Which columns matter: how much worse a model gets when the values of a column are shuffled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from tailwise.calibration.calibration import Predicted
from tailwise.estimator import TailRegressor
from tailwise.explanations.columnwise import FIGURES, ColumnwiseModel, Floats, sampled
from tailwise.labels.bins import checked_labels
from tailwise.labels.prior import rarest
from tailwise.lookup import check_name


def _error(predicted: Predicted, y: Floats, coverage: float) -> Floats:
    return np.asarray(np.abs(FIGURES["prediction"](predicted, coverage) - y))


def _crps(predicted: Predicted, y: Floats, coverage: float) -> Floats:
    return np.asarray(predicted.distribution.crps(torch.from_numpy(y)).double().numpy())


def _change(after: Floats, before: Floats) -> Floats:
    return after - before


def _distance(after: Floats, before: Floats) -> Floats:
    return np.asarray(np.abs(after - before))


Measured = Callable[[Predicted, Floats, float], Floats]
MEASURES: dict[str, tuple[Measured, Callable[[Floats, Floats], Floats]]] = {
    "error": (_error, _change),
    "crps": (_crps, _change),
    "width": (lambda predicted, _, coverage: FIGURES["width"](predicted, coverage), _distance),
    "std": (lambda predicted, _, coverage: FIGURES["std"](predicted, coverage), _distance),
}
"""By name: a figure of each row, and how it is compared between a shuffled and the real table.

A loss is compared by its increase. A width or a standard deviation is no loss: shuffling makes some larger
and others smaller, so it is compared by the mean of the absolute changes.
"""


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
    random, are used. An importance below twice its spread may be chance. Two
    columns that say the same share their importance: shuffling one leaves the other.
    """
    for name in measures:
        check_name("measure", name, MEASURES)
    if repeats < 2:
        raise ValueError(f"repeats must be at least 2 to show a spread, got {repeats}")
    check_is_fitted(model)
    columns = ColumnwiseModel(
        model, target=target, emphasis=emphasis, label_prior=label_prior, coverage=coverage
    )
    matrix, labels = columns.encode(X), checked_labels(y)
    if len(labels) != len(matrix):
        raise ValueError(f"X has {len(matrix)} rows and y has {len(labels)}")
    rng = np.random.default_rng(random_state)
    rare = rarest(labels, columns.calibration.labels.density)
    rows = sampled(len(labels), max_rows, rng)
    matrix, labels, rare = matrix[rows], labels[rows], rare[rows]
    groups = {"all": np.ones(len(labels), bool), **({"rare": rare} if rare.any() else {})}

    def figures(encoded: Floats) -> dict[str, Floats]:
        """Each measure of each row, for one or more tables below one another. (R * N, F) -> (R, N)"""
        predicted, truth = columns.predicted(encoded), np.tile(labels, len(encoded) // len(labels))
        return {
            name: MEASURES[name][0](predicted, truth, coverage).reshape(-1, len(labels)) for name in measures
        }

    before = figures(matrix)
    orders = [rng.permutation(len(labels)) for _ in range(repeats)]
    lines = []
    for column, places in columns.places.items():
        after = before
        if places:
            shuffled = np.tile(matrix, (repeats, 1))
            shuffled[:, places] = matrix[np.concatenate(orders)][:, places]
            after = figures(shuffled)
        for name in measures:
            changes = MEASURES[name][1](after[name], before[name])
            for group, chosen in groups.items():
                means = np.broadcast_to(changes[:, chosen].mean(axis=1), repeats)
                lines.append(_row(name, group, column, means, before[name][0], chosen))
    table = pd.DataFrame(lines)
    for key, names in (("measure", list(measures)), ("labels", list(groups))):
        table[key] = pd.Categorical(table[key], names)
    table = table.sort_values(["measure", "labels", "importance"], ascending=[True, True, False])
    return table.astype({"measure": "str", "labels": "str"}).reset_index(drop=True)


def _row(
    measure: str, group: str, column: str, means: Floats, reference: Floats, chosen: NDArray[np.bool_]
) -> dict[str, Any]:
    return {
        "measure": measure,
        "labels": group,
        "column": column,
        "importance": float(np.mean(means)),
        "spread": float(np.std(means, ddof=1)),
        "reference": float(reference[chosen].mean()),
        "rows": int(chosen.sum()),
    }
