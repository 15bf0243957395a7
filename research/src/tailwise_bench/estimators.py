"""Regressors that users choose among, each fitted on a raw table: TailRegressor and boosted trees.

Every estimator gives a mean, a 90% interval and a CRPS. Most come in two rows: with their own intervals, and
with split-conformal intervals by crepes, which a fifth of the training rows calibrates. crepes was chosen
over MAPIE because it works on predictions alone: any model and any table will do. It needs only NumPy, pandas
and SciPy. The width of a model's own interval is the difficulty of a row, so that conformal intervals are
wide where the model is unsure. Everything runs on one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from tailwise.distributions.members import Distribution, Normal
from tailwise.labels.bins import LabelBins
from tailwise.labels.kernels import label_weights
from tailwise.lookup import check_name
from tailwise.metrics.scores import crps
from tailwise.tables.split import random_split

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
COVERAGE = 0.9
QUANTILES = tuple(round(0.05 + 0.1 * i, 2) for i in range(10))
"""Levels of LightGBM's quantile models. The first and the last are the ends of a 90% interval."""
CATBOOST_TREES, LIGHTGBM_TREES, NGBOOST_TREES = 1000, 500, 500
CALIBRATION_SHARE = 0.2
FALLBACK_QUANTILES = 100


@dataclass(frozen=True)
class Prediction:
    """Means and ends of 90% intervals (N,), with a distribution or quantiles (N, Q) for the CRPS."""

    mean: Array
    lower: Array
    upper: Array
    distribution: Distribution | None = None
    quantiles: Array | None = None

    def crps(self, y: Array, rows: NDArray[Any]) -> float:
        """Return the mean CRPS of some rows.

        Of Q quantiles at the levels (i - 1/2) / Q it is the CRPS of the distribution that gives each of them
        the probability 1 / Q: twice the mean pinball loss.
        """
        if self.distribution is not None:
            chosen = self.distribution[torch.from_numpy(np.flatnonzero(rows))]
            try:
                return crps(chosen, torch.from_numpy(y[rows]))
            except TypeError:  # a distribution without a closed form
                levels = (np.arange(FALLBACK_QUANTILES) + 0.5) / FALLBACK_QUANTILES
                quantiles = np.stack([np.asarray(chosen.quantile(float(level))) for level in levels], axis=1)
                return pinball_crps(quantiles, y[rows])
        if self.quantiles is None:
            raise ValueError("a prediction needs a distribution or quantiles for its CRPS")
        return pinball_crps(self.quantiles[rows], y[rows])


def pinball_crps(quantiles: Array, y: Array) -> float:
    """Return twice the mean pinball loss of quantiles (N, Q) at the levels (i - 1/2) / Q.

    >>> float(pinball_crps(np.array([[0.0, 2.0]]), np.array([1.0])))
    0.5
    """
    levels = (np.arange(quantiles.shape[1]) + 0.5) / quantiles.shape[1]
    below = y[:, None] - np.sort(quantiles, axis=1)
    return float(2 * np.maximum(levels * below, (levels - 1) * below).mean())


Predict = Callable[["pd.DataFrame"], Prediction]
Fit = Callable[["pd.DataFrame", Array, int], Predict]


@dataclass(frozen=True)
class Estimator:
    """A row of the comparison: a function that fits, and the packages that it needs."""

    name: str
    title: str
    fit: Fit = field(repr=False)

    @property
    def parameters(self) -> Mapping[str, Any] | None:
        """The parameters of TailRegressor that this row sets; None for other models."""
        fit: Any = self.fit
        if isinstance(fit, partial) and fit.func is fit_conformal:
            fit = fit.keywords["fit"]
        if isinstance(fit, partial) and fit.func is fit_tail:
            return fit.keywords
        return {} if fit is fit_tail else None


# -- tables for boosted trees --------------------------------------------------------------------


@dataclass(frozen=True)
class _Columns:
    """Columns of a training table: which are numbers, and the values of the others."""

    numbers: tuple[str, ...]
    values: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, x: pd.DataFrame) -> _Columns:
        import pandas as pd

        numbers = tuple(
            name
            for name in x.columns
            if pd.api.types.is_numeric_dtype(x[name]) or pd.api.types.is_datetime64_any_dtype(x[name])
        )
        others = [name for name in x.columns if name not in numbers]
        return cls(numbers, {name: tuple(sorted(set(_strings(x[name])))) for name in others})

    def numeric(self, x: pd.DataFrame) -> dict[str, Any]:
        """Return the numbers, and dates as numbers; missing ones are NaN."""
        import pandas as pd

        found = {}
        for name in self.numbers:
            if pd.api.types.is_datetime64_any_dtype(x[name]):
                days = (x[name] - pd.Timestamp(0, tz=x[name].dt.tz)) / pd.Timedelta(days=1)
                found[name] = days.to_numpy(np.float64)
            else:
                found[name] = x[name].to_numpy(np.float64, na_value=np.nan)
        return found


def _strings(column: pd.Series[Any]) -> list[str]:
    """Return values as strings; a missing one is ``"missing"``."""
    return ["missing" if absent else str(value) for value, absent in zip(column, column.isna(), strict=True)]


def sqinv_weights(y: Array) -> Array:
    """Return SQINV label weights (VIR:weight) of training rows. (N,)"""
    bins = LabelBins.from_labels(y)
    return np.asarray(label_weights(bins)[bins.index(y)])


def _normal(mean: Any, variance: Any) -> Prediction:
    mean, variance = (np.ascontiguousarray(part, np.float64) for part in (mean, variance))
    reach = float(stats.norm.ppf((1 + COVERAGE) / 2)) * np.sqrt(variance)
    normal = Normal(torch.from_numpy(mean), torch.from_numpy(variance))
    return Prediction(mean, mean - reach, mean + reach, normal)


# -- models --------------------------------------------------------------------------------------


def fit_tail(x: pd.DataFrame, y: Array, seed: int, **parameters: Any) -> Predict:
    """Fit TailRegressor, whose own intervals are conformal already."""
    from tailwise.estimator import TailRegressor

    model = TailRegressor(random_state=seed, device="cpu", **parameters).fit(x, y)

    def predict(x: pd.DataFrame) -> Prediction:
        (found,) = model.predictions(x)
        lower, upper = (end.numpy() for end in found.interval(COVERAGE))
        return Prediction(found.distribution.point.numpy(), lower, upper, found.distribution)

    return predict


def fit_catboost(
    x: pd.DataFrame,
    y: Array,
    seed: int,
    *,
    weighted: bool = False,
    trees: int = CATBOOST_TREES,
    threads: int = 1,
) -> Predict:
    """Fit CatBoost's Gaussian (RMSEWithUncertainty) with its own handling of categories."""
    import pandas as pd
    from catboost import CatBoostRegressor

    columns = _Columns.of(x)

    def table(x: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({**columns.numeric(x), **{name: _strings(x[name]) for name in columns.values}})

    model = CatBoostRegressor(
        loss_function="RMSEWithUncertainty", iterations=trees, random_seed=seed, thread_count=threads,
        verbose=False, allow_writing_files=False, cat_features=list(columns.values),
    )  # fmt: skip
    model.fit(table(x), y, sample_weight=sqinv_weights(y) if weighted else None)

    def predict(x: pd.DataFrame) -> Prediction:
        found = model.predict(table(x), prediction_type="RMSEWithUncertainty", thread_count=threads)
        return _normal(*np.asarray(found, np.float64).T)

    return predict


def fit_lightgbm(x: pd.DataFrame, y: Array, seed: int, *, weighted: bool = False) -> Predict:
    """Fit LightGBM's mean, and ten quantile models for its intervals and CRPS."""
    import lightgbm
    import pandas as pd

    columns = _Columns.of(x)

    def table(x: pd.DataFrame) -> pd.DataFrame:
        kinds = {
            name: pd.Categorical(_strings(x[name]), categories=values)
            for name, values in columns.values.items()
        }
        made = pd.DataFrame({**columns.numeric(x), **kinds})
        return made.set_axis([f"c{i}" for i in range(made.shape[1])], axis=1)  # any name is allowed this way

    weight = sqinv_weights(y) if weighted else None
    rows = lightgbm.Dataset(table(x), y, weight=weight, free_raw_data=False)
    common = {"learning_rate": 0.05, "num_threads": 1, "verbosity": -1, "seed": seed, "deterministic": True}
    objectives: list[dict[str, Any]] = [{"objective": "regression"}]
    objectives += [{"objective": "quantile", "alpha": level} for level in QUANTILES]
    mean, *others = [
        lightgbm.train({**common, **objective}, rows, num_boost_round=LIGHTGBM_TREES)
        for objective in objectives
    ]

    def predict(x: pd.DataFrame) -> Prediction:
        inputs = table(x)
        quantiles = np.sort(np.stack([np.asarray(model.predict(inputs)) for model in others], axis=1), axis=1)
        means = np.asarray(mean.predict(inputs), np.float64)
        return Prediction(means, quantiles[:, 0], quantiles[:, -1], quantiles=quantiles)

    return predict


def fit_ngboost(x: pd.DataFrame, y: Array, seed: int) -> Predict:
    """Fit NGBoost's Gaussian on the table as TailRegressor encodes it."""
    from ngboost import NGBRegressor
    from ngboost.learners import default_tree_learner
    from sklearn.base import clone

    from tailwise.tables.encode import TablePreprocessor

    encoder = TablePreprocessor.fit(x)
    tree = clone(default_tree_learner).set_params(random_state=seed)
    model = NGBRegressor(
        Base=tree, n_estimators=NGBOOST_TREES, learning_rate=0.05, random_state=seed, verbose=False
    ).fit(np.asarray(encoder.transform(x), np.float64), y)

    def predict(x: pd.DataFrame) -> Prediction:
        found = model.pred_dist(np.asarray(encoder.transform(x), np.float64))
        return _normal(found.loc, np.asarray(found.scale) ** 2)

    return predict


def fit_conformal(x: pd.DataFrame, y: Array, seed: int, *, fit: Fit) -> Predict:
    """Fit a model on four fifths of the rows and split-conformal intervals around its mean on the rest."""
    from crepes import ConformalRegressor

    split = random_split(len(y), valid=0.0, test=CALIBRATION_SHARE, seed=seed)
    kept, held = (x.iloc[rows].reset_index(drop=True) for rows in (split.train, split.test))
    predict = fit(kept, y[split.train], seed)
    tiny = float(np.ptp(y)) * 1e-9 or 1e-9

    def difficulty(prediction: Prediction) -> Array:
        return np.maximum(prediction.upper - prediction.lower, tiny)

    on_held = predict(held)
    conformal = ConformalRegressor().fit(y[split.test] - on_held.mean, sigmas=difficulty(on_held))

    def predict_conformal(x: pd.DataFrame) -> Prediction:
        found = predict(x)
        ends = conformal.predict_int(found.mean, sigmas=difficulty(found), confidence=COVERAGE)
        return replace(found, lower=ends[:, 0], upper=ends[:, 1])

    return predict_conformal


# -- rows ----------------------------------------------------------------------------------------

_MODELS: tuple[tuple[str, str, Fit], ...] = (
    ("catboost", "CatBoost", fit_catboost),
    ("tail", "TailRegressor", fit_tail),
    ("tail-none", "TailRegressor, base None", partial(fit_tail, base=None)),
    ("tail-lightgbm", "TailRegressor, base LightGBM", partial(fit_tail, base="lightgbm")),
    (
        "tail-hist",
        "TailRegressor, base HistGradientBoosting",
        partial(fit_tail, base="hist-gradient-boosting"),
    ),
    ("catboost-weighted", "CatBoost + label weights", partial(fit_catboost, weighted=True)),
    ("lightgbm", "LightGBM", fit_lightgbm),
    ("lightgbm-weighted", "LightGBM + label weights", partial(fit_lightgbm, weighted=True)),
    ("ngboost", "NGBoost", fit_ngboost),
)
REFERENCE = "catboost"
CONFORMAL = "+conformal"


def all_estimators() -> list[Estimator]:
    """Return every model with its own intervals, then models with conformal ones."""
    own = [Estimator(*row) for row in _MODELS]
    return own + [_with_conformal(e) for e in own if not e.name.startswith("tail")]


def _with_conformal(estimator: Estimator) -> Estimator:
    return Estimator(
        name=estimator.name + CONFORMAL,
        title=f"{estimator.title}, conformal",
        fit=partial(fit_conformal, fit=estimator.fit),
    )


def choose_estimators(names: Iterable[str]) -> list[Estimator]:
    """Return estimators by name; ``all`` are all of them."""
    known = {estimator.name: estimator for estimator in all_estimators()}
    chosen = [estimator for name in names for estimator in (known if name == "all" else [name])]
    for name in chosen:
        check_name("estimator", name, known)
    return [known[name] for name in dict.fromkeys(chosen)]
