"""What a fitted `TailRegressor` does with new labelled rows: calibrate again, and check its intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from tailwise.core.pooling import pooled
from tailwise.data.inputs import row_count
from tailwise.data.splits import halves
from tailwise.estimator.fitting import Fitting
from tailwise.estimator.holdout import MIN_HOLDOUT
from tailwise.estimator.preparing import Floats
from tailwise.uncertainty.by_column import column_groups, coverage_by_group
from tailwise.uncertainty.calibrator import fit_calibrator
from tailwise.uncertainty.column_groups import BINS

if TYPE_CHECKING:
    import pandas as pd


class Recalibration(Fitting):
    """Methods for new rows with labels, without training."""

    target_names_: list[str] | None
    predict_interval: Callable[..., Floats]

    def recalibrate(self, X: Any, y: Any, *, base_prediction: ArrayLike | None = None) -> Self:
        """Fit scaling and intervals anew on rows that training did not see, and return self.

        Networks, base, bounds and emphasis stay as they are, so predicted means do not change at emphasis 0
        and without bounds. Half of the rows fit the scaling and the other half the intervals; with fewer than
        80 rows all of them do both. `save` writes the new calibration.
        """
        check_is_fitted(self, "networks_")
        labels = self._labels(X, y)
        if len(labels) < MIN_HOLDOUT:
            raise ValueError(f"recalibrate needs at least {MIN_HOLDOUT} rows, got n_samples={len(labels)}")
        columns = labels.reshape(len(labels), -1).T
        for calibrator, column in zip(self.calibrators_, columns, strict=True):
            if calibrator.bounds is not None:
                calibrator.bounds.check(column)
        X = self._validated(X, reset=False)
        features, matrix = self._features(X)
        offset = self._offset(matrix, row_count(X), base_prediction)
        x = self._inputs(features, offset)
        raw = pooled([self._network_prediction(network, x, offset) for network in self.networks_])
        select, confirm = halves(len(labels), 0, 4 * MIN_HOLDOUT)
        found, groups = [], self._interval_groups(X)
        for t, (calibrator, column) in enumerate(zip(self.calibrators_, columns, strict=True)):
            fitted = fit_calibrator(
                raw if labels.ndim == 1 else raw[:, t],
                column,
                calibrator.bins,
                select,
                confirm,
                calibrate=self.calibrate if self._scalable else False,
                conformal=self.conformal,
                emphasis=calibrator.emphasis,
                bounds=calibrator.bounds,
                many=self.many,
                few=self.few,
                column=self.conformal_groups_,
                column_codes=groups,
            )
            found.append(replace(fitted, support=calibrator.support))
        self.calibrators_ = found
        self.held_out_, self.unseen_ = True, len(confirm) < len(labels)
        self.recalibrated_ = len(labels)
        return self

    def coverage_by(
        self, X: Any, y: Any, column: Any, coverage: float = 0.9, *, bins: int = BINS, **prediction: Any
    ) -> pd.DataFrame:
        """Return how often intervals contain the label, and how wide they are, by the values of a column.

        `column` is the name of a column of X, its number, or one value per row. Numbers with more than 20
        values are cut into `bins` groups of equal size. The columns are value, rows, coverage, the ends of
        its 95% Wilson interval and the mean width; the last row is for all rows. Keyword arguments are those
        of `predict_interval`. With several targets there is a column ``target``.
        """
        import pandas as pd

        labels = self._labels(X, y)
        values = self._column(X, column, "column")
        if isinstance(column, (int, np.integer)):
            values = X.iloc[:, int(column)] if hasattr(X, "iloc") else np.asarray(X)[:, int(column)]
        group, names = column_groups(values, bins)
        if len(group) != len(labels):
            raise ValueError(f"column has {len(group)} values for {len(labels)} rows")
        ends = self.predict_interval(X, coverage, **prediction).reshape(len(labels), -1, 2)
        tables = []
        for t, own in enumerate(labels.reshape(len(labels), -1).T):
            table = coverage_by_group(group, names, ends[:, t, 0], ends[:, t, 1], own)
            if self.n_targets_ > 1:
                table.insert(0, "target", self.target_names_[t] if self.target_names_ else t)
            tables.append(table)
        return pd.concat(tables, ignore_index=True)
