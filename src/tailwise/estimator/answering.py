"""What users ask of a fitted `TailRegressor`: labels, intervals, quantiles, tables and scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from tailwise.core.distributions import Distribution
from tailwise.estimator.predicting import Predicting
from tailwise.estimator.preparing import Floats
from tailwise.uncertainty.spreads import standard_deviation

if TYPE_CHECKING:
    import pandas as pd


class Answering(Predicting):
    """Public methods that predict."""

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        *,
        emphasis: float | None = None,
        label_prior: Any = None,
        base_prediction: ArrayLike | None = None,
    ) -> Floats | tuple[Floats, Floats]:
        """Return the predicted label of each row, and with `return_std` its standard deviation.

        Both are in the units of y; (N,) for one target, (N, T) for several. The predicted label is the mean
        of the predicted distribution, and its median under an emphasis or a label prior. With a very heavy
        tail the standard deviation is limited (`tailwise.uncertainty.spreads.standard_deviation`).

        `emphasis` turns the dial between common and rare labels (VIR:dial): 0 expects labels as in
        training, 1 expects every label equally often. Unless given it is `emphasis_`, which `fit` chose.
        `label_prior` describes the labels expected in use instead: a sample of them, a pair
        ``(edges, counts)``, or a function that gives the density of a label; for several targets a list with
        one for each. `base_prediction` is needed if `fit` had one. All predictions take these three.
        """
        found = self.predictions(X, emphasis, label_prior, base_prediction)
        point = self._joined([p.distribution.point for p in found])
        return (
            (point, self._joined([standard_deviation(p.distribution) for p in found]))
            if return_std
            else point
        )

    def predict_distribution(
        self,
        X: Any,
        *,
        emphasis: float | None = None,
        label_prior: Any = None,
        base_prediction: ArrayLike | None = None,
    ) -> Distribution | list[Distribution]:
        """Return the calibrated predictive distribution; a list with one per target for several."""
        found = [p.distribution for p in self.predictions(X, emphasis, label_prior, base_prediction)]
        return found[0] if self.n_targets_ == 1 else found

    def predict_interval(
        self,
        X: Any,
        coverage: float = 0.9,
        *,
        emphasis: float | None = None,
        label_prior: Any = None,
        base_prediction: ArrayLike | None = None,
    ) -> Floats:
        """Return lower and upper ends of intervals that contain the label with the given probability.

        (N, 2) for one target, (N, T, 2) for several. Coverage holds approximately, on average over rows like
        the training rows, whatever the emphasis; the rarest labels are covered about as often as others. No
        method can guarantee coverage given the true label. `explain_intervals` says which intervals are in
        use. If there are too few held-out rows for the coverage, a warning says so and the intervals span all
        training labels.
        """
        found = self.predictions(X, emphasis, label_prior, base_prediction)
        ends = [p.interval(coverage) for p in found]
        return np.stack([self._joined([e[side] for e in ends]) for side in (0, 1)], axis=-1)

    def predict_quantiles(
        self,
        X: Any,
        q: float | Sequence[float],
        *,
        emphasis: float | None = None,
        label_prior: Any = None,
        base_prediction: ArrayLike | None = None,
    ) -> Floats:
        """Return quantiles of the calibrated distribution at the levels q, as a new last dimension."""
        levels = np.atleast_1d(np.asarray(q, np.float64))
        if not (levels.size and ((levels > 0) & (levels < 1)).all()):
            raise ValueError(f"quantile levels must lie between 0 and 1, got {levels.tolist()}")
        found = self.predictions(X, emphasis, label_prior, base_prediction)
        columns = [self._joined([p.quantile(float(level)) for p in found]) for level in levels]
        return np.stack(columns, axis=-1)

    def predict_frame(
        self,
        X: Any,
        coverage: float = 0.9,
        *,
        emphasis: float | None = None,
        label_prior: Any = None,
        base_prediction: ArrayLike | None = None,
    ) -> pd.DataFrame:
        """Return a table: prediction, std, lower, upper, aleatoric_std, epistemic_std and region.

        The index is that of X. With several targets the columns of each end in ``_`` and its name, or its
        number if y had no names.
        """
        import pandas as pd

        columns: dict[str, Any] = {}
        found = self.predictions(X, emphasis, label_prior, base_prediction)
        for t, predicted in enumerate(found):
            suffix = "" if self.n_targets_ == 1 else f"_{self._target_name(t)}"
            table = predicted.columns(coverage, self.many, self.few)
            columns |= {name + suffix: value for name, value in table.items()}
        index = X.index if hasattr(X, "index") and hasattr(X, "columns") else None
        return pd.DataFrame(columns, index=index)

    def _target_name(self, t: int) -> str | int:
        return self.target_names_[t] if self.target_names_ else t

    def score_by_region(
        self,
        X: Any,
        y: Any,
        coverage: float = 0.9,
        *,
        emphasis: float | None = None,
        label_prior: Any = None,
        base_prediction: ArrayLike | None = None,
    ) -> pd.DataFrame:
        """Return a tidy table of errors and coverage for all, many-, medium- and few-shot labels.

        Regions go by the true label's bin in training. `coverage` and `width` are those of
        `predict_interval`; `constant_coverage` and `constant_width` are those of one interval for all rows,
        between two quantiles of the training labels. With several targets a column
        ``target`` holds the name of each, or its number if y had no names.
        """
        import pandas as pd

        check_is_fitted(self, "networks_")
        labels = self._labels(X, y)
        tables = []
        found = self.predictions(X, emphasis, label_prior, base_prediction)
        for t, predicted in enumerate(found):
            own = labels if labels.ndim == 1 else labels[:, t]
            table = predicted.scores(own, coverage, self.many, self.few)
            if self.n_targets_ > 1:
                table.insert(0, "target", self._target_name(t))
            tables.append(table)
        return pd.concat(tables, ignore_index=True)

    @property
    def emphasis_(self) -> float | list[float]:
        """The emphasis that predictions use unless told otherwise; a list for several targets."""
        each = [calibrator.emphasis for calibrator in self.calibrators_]
        return each[0] if self.n_targets_ == 1 else each

    def explain_intervals(
        self,
        coverage: float = 0.9,
        target: int | None = None,
        *,
        emphasis: float | None = None,
        label_prior: Any = None,
    ) -> str:
        """Return a text: which intervals are in use, how many rows they rest on, what they guarantee.

        It covers every target, or only the one with the given number.
        """
        check_is_fitted(self, "networks_")
        found = self.calibrators_at(emphasis, label_prior)
        chosen = found if target is None else [found[target]]
        return self._held_out_rows() + "\n".join(calibrator.explain(coverage) for calibrator in chosen)

    def _held_out_rows(self) -> str:
        """Say what is special about the rows that the intervals rest on; empty if nothing is."""
        if self.recalibrated_:
            return f"The model was recalibrated on {self.recalibrated_} rows that training did not see.\n"
        if not self.held_out_:
            return (
                "The table is too small to hold out rows. The figures below are of training rows: they are "
                "optimistic and guarantee nothing for new rows.\n"
            )
        if any(c.conformal is not None and c.conformal.votes for c in self.calibrators_):
            return (
                f"Each of the {len(self.networks_)} networks held out other rows, which also decided when it "
                "stopped. An interval holds what the intervals of most networks hold.\n"
            )
        if not self.unseen_:
            return (
                "The held-out rows also decided when to stop training, so any guarantee below is "
                "approximate.\n"
            )
        return ""
