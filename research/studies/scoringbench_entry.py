"""TailRegressor as a model of ScoringBench (arXiv:2603.29928), in a checkout of that benchmark.

    PYTHONPATH=research/studies python run_bench_regression.py

Its scoringbench/univariate/models.py needs ``from scoringbench_entry import TailwiseWrapper`` and an entry
``"tailwise": TailwiseWrapper`` in MODELS, and models.json a line with links. It downloads its 97 tables;
scoringbench_tables.py has its protocol on those that are held here.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scoringbench.univariate.wrappers.base import DistributionPrediction, ProbabilisticWrapper

from tailwise import TailRegressor

LEVELS = (np.arange(400) + 0.5) / 400


class TailwiseWrapper(ProbabilisticWrapper):  # type: ignore[misc,unused-ignore]
    """Predictions at emphasis 0: the labels of this benchmark are scored as often as they occur."""

    def __init__(self, **parameters: Any) -> None:
        self.model = TailRegressor(**{"random_state": 42, "emphasis": 0.0, **parameters})

    def fit(self, X: Any, y: Any) -> Self:
        """Fit to a table."""
        self._set_train_range(y)
        self.model.fit(X, np.asarray(y, np.float64).ravel())
        return self

    def predict(self, X: Any) -> Any:
        """Return a point for each row. (N,)"""
        return self.model.predict(X)

    def predict_distribution(self, X: Any) -> Any:
        """Return the distribution of each row by 400 quantiles."""
        return DistributionPrediction.from_multi_quantile(
            self.model.predict_quantiles(X, list(LEVELS)),
            LEVELS,
            mean=self.model.predict_distribution(X).mean.numpy(),
            train_range=self._y_train_range,
        )
