"""Regressors that users choose among, on a raw table: TailRegressor, boosted trees, networks, a constant.

Every estimator gives a prediction, a 90% interval and a CRPS. CatBoost is there in the forms that an expert
would try. Those that predict a point get intervals and quantiles from the residuals of a fifth of the
training rows, and predict with a model of all of them. Everything runs on one thread.
"""

from __future__ import annotations

import logging
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
from tailwise.metrics.scores import crps, winkler
from tailwise_bench.tables import random_parts

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
COVERAGE = 0.9
QUANTILES = tuple(round(0.05 + 0.1 * i, 2) for i in range(10))
"""Levels of LightGBM's quantile models. The first and the last are the ends of a 90% interval."""
CATBOOST_TREES, LIGHTGBM_TREES = 1000, 500
GAUSSIAN = "RMSEWithUncertainty"
CALIBRATION_SHARE = 0.2
LEVELS = (np.arange(100) + 0.5) / 100
"""Levels of quantiles from residuals."""
COARSE = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Levels of CatBoost's MultiQuantile; the other quantiles are interpolated."""
FOLDS = 5
SKEWED = 1.0
"""Labels of this skewness or more, none negative, are predicted on a log scale by the form that does so."""


@dataclass(frozen=True)
class Prediction:
    """Points and ends of 90% intervals (N,), with a distribution or quantiles (N, Q) for the CRPS."""

    mean: Array
    lower: Array
    upper: Array
    distribution: Distribution | None = None
    quantiles: Array | None = None
    held_mae: float | None = None
    """MAE on held-out training rows, by which forms of one model are chosen."""
    with_rare: Callable[[], tuple[Array, Array]] | None = None
    """Return ends of intervals that also cover 90% of the rarest labels."""

    def crps(self, y: Array, rows: NDArray[Any]) -> float:
        """Return the mean CRPS of some rows.

        Of Q quantiles at the levels (i - 1/2) / Q it is the CRPS of the distribution that gives each of them
        the probability 1 / Q: twice the mean pinball loss.
        """
        if self.distribution is not None:
            chosen = self.distribution[torch.from_numpy(np.flatnonzero(rows))]
            return crps(chosen, torch.from_numpy(y[rows]))
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
Predicts = Callable[["pd.DataFrame"], Array]
Learn = Callable[["pd.DataFrame", Array, int], Predicts]


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
        if isinstance(fit, partial) and fit.func is fit_tail:
            return fit.keywords
        return {} if fit is fit_tail else None


# -- tables for other packages --------------------------------------------------------------------


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

    def table(self, x: pd.DataFrame) -> pd.DataFrame:
        """Return the numbers, and the other columns as strings."""
        import pandas as pd

        return pd.DataFrame({**self.numeric(x), **{name: _strings(x[name]) for name in self.values}})


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

        def ends(rare: float | None = None) -> tuple[Array, Array]:
            lower, upper = found.interval(COVERAGE, rare)
            return lower.numpy(), upper.numpy()

        point = found.distribution.point.numpy()
        return Prediction(point, *ends(), found.distribution, with_rare=lambda: ends(COVERAGE))

    return predict


def _catboost(
    x: pd.DataFrame,
    y: Array,
    seed: int,
    loss: str,
    *,
    weight: Array | None = None,
    trees: int = CATBOOST_TREES,
) -> Predicts:
    """Fit CatBoost with its own handling of categories; return what predicts. (N,) or (N, K)"""
    from catboost import CatBoostRegressor

    columns = _Columns.of(x)
    model = CatBoostRegressor(
        loss_function=loss, iterations=trees, random_seed=seed, thread_count=1, verbose=False,
        allow_writing_files=False, cat_features=list(columns.values),
    )  # fmt: skip
    model.fit(columns.table(x), y, sample_weight=weight)
    kind = {"prediction_type": loss} if loss == GAUSSIAN else {}
    return lambda x: np.asarray(model.predict(columns.table(x), thread_count=1, **kind), np.float64)


def _pytabkit(x: pd.DataFrame, y: Array, seed: int, name: str, folds: int) -> Predicts:
    """Fit networks of pytabkit, one or one a fold, with its defaults; return what predicts their mean. (N,)

    A missing number is the median of its column.
    """
    try:
        import torchvision  # noqa: F401
    except RuntimeError:  # beside a CPU build of torch; pytabkit imports it and calls neither function
        for missing in ("nms", "qnms"):
            arguments = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{missing}", arguments)
    import pytabkit

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    columns = _Columns.of(x)
    table = columns.table(x)
    medians = table.median(numeric_only=True)
    model = getattr(pytabkit, name)(n_cv=folds, random_state=seed, device="cpu", n_threads=1)
    model.fit(table.fillna(medians), y)
    return lambda x: np.asarray(model.predict(columns.table(x).fillna(medians)), np.float64)


def fit_gaussian(
    x: pd.DataFrame, y: Array, seed: int, *, weighted: bool = False, trees: int = CATBOOST_TREES
) -> Predict:
    """Fit CatBoost's Gaussian (RMSEWithUncertainty)."""
    model = _catboost(x, y, seed, GAUSSIAN, weight=sqinv_weights(y) if weighted else None, trees=trees)
    return lambda x: _normal(*model(x).T)


def _scale(y: Array, log: bool) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """Return what takes labels to the scale of a form, and back."""
    if not (log and y.min() >= 0 and stats.skew(y) >= SKEWED):
        return np.asarray, np.asarray
    return (np.log, np.exp) if y.min() > 0 else (np.log1p, np.expm1)


def _from_residuals(predicted: Array, residuals: Array, back: Callable[[Array], Array]) -> Prediction:
    """Return predictions with residuals around them: (N,), and (n,) or with a row for each (N, n)."""
    n = residuals.shape[-1]
    outside = round((1 - COVERAGE) / 2, 9)
    ends = np.clip([np.floor((n + 1) * outside) - 1, np.ceil((n + 1) * (1 - outside)) - 1], 0, n - 1)
    offsets = np.quantile(residuals, [*ends / (n - 1), *LEVELS], axis=-1)
    lower, upper, *quantiles = back(predicted + (offsets if residuals.ndim == 2 else offsets[:, None]))
    return Prediction(back(predicted), lower, upper, quantiles=np.stack(quantiles, axis=1))


def fit_form(x: pd.DataFrame, y: Array, seed: int, *, loss: str = "RMSE", log: bool = False) -> Predict:
    """Fit CatBoost to predict a point, with `log` on a log scale if labels are skewed."""
    return fit_point(x, y, seed, learn=partial(_catboost, loss=loss), log=log)


def fit_point(x: pd.DataFrame, y: Array, seed: int, *, learn: Learn, log: bool = False) -> Predict:
    """Fit a model that predicts a point.

    The residuals of a fifth of the rows, for a model of the others, make split-conformal intervals.
    """
    to, back = _scale(y, log)
    kept, held = _parts(len(y), seed)
    part = learn(x.iloc[kept], to(y[kept]), seed)(x.iloc[held])
    residuals, held_mae = to(y[held]) - part, float(np.abs(back(part) - y[held]).mean())
    model = learn(x, to(y), seed)
    return lambda x: replace(_from_residuals(model(x), residuals, back), held_mae=held_mae)


def fit_quantiles(x: pd.DataFrame, y: Array, seed: int) -> Predict:
    """Fit five quantiles at once (MultiQuantile), whose ends a fifth of the rows corrects (CQR)."""
    loss = f"MultiQuantile:alpha={','.join(map(str, COARSE))}"
    kept, held = _parts(len(y), seed)
    part = np.sort(_catboost(x.iloc[kept], y[kept], seed, loss)(x.iloc[held]), axis=1)
    n, middle = len(held), len(COARSE) // 2
    missed = np.maximum(part[:, 0] - y[held], y[held] - part[:, -1])
    wider = float(np.quantile(missed, min(1.0, COVERAGE * (n + 1) / n)))
    held_mae = float(np.abs(part[:, middle] - y[held]).mean())
    model = _catboost(x, y, seed, loss)

    def predict(x: pd.DataFrame) -> Prediction:
        rows = np.sort(model(x), axis=1)
        point = rows[:, middle].copy()
        rows[:, 0], rows[:, -1] = rows[:, 0] - wider, rows[:, -1] + wider
        quantiles = np.stack([np.interp(LEVELS, COARSE, np.sort(row)) for row in rows])
        return Prediction(point, rows[:, 0], rows[:, -1], quantiles=quantiles, held_mae=held_mae)

    return predict


def fit_cross_validated(x: pd.DataFrame, y: Array, seed: int) -> Predict:
    """Fit CatBoost with CV+ intervals from five folds, on labels and, if skewed, on their logarithms.

    The scale is taken whose intervals around the folds' held-out predictions have the lower interval score.
    """
    fold = np.random.default_rng(seed).permutation(len(y)) % FOLDS
    counts, labels = np.bincount(fold), np.concatenate([y[fold == k] for k in range(FOLDS)])

    def on_scale(log: bool) -> tuple[float, bool, list[Callable[[pd.DataFrame], Array]], Array]:
        to, back = _scale(y, log)
        parts = [_catboost(x[fold != k], to(y[fold != k]), seed, "RMSE") for k in range(FOLDS)]
        held = np.concatenate([parts[k](x[fold == k]) for k in range(FOLDS)])
        found = _from_residuals(held, to(labels) - held, back)
        lower, upper, of = (torch.from_numpy(part) for part in (found.lower, found.upper, labels))
        scores = winkler(lower, upper, of, COVERAGE)
        return float(scores.mean()), log, parts, to(labels) - held

    skewed = _scale(y, True)[0] is not np.asarray
    _, log, parts, residuals = min(map(on_scale, (False, True)[: 1 + skewed]), key=lambda tried: tried[0])
    to, back = _scale(y, log)
    model = _catboost(x, to(y), seed, "RMSE")

    def predict(x: pd.DataFrame) -> Prediction:
        point, found = model(x), []
        folds = np.stack([part(x) for part in parts], axis=1)
        for rows in np.array_split(np.arange(len(x)), max(1, len(x) // 500)):
            around = np.repeat(folds[rows], counts, axis=1) + residuals - point[rows, None]
            found.append(_from_residuals(point[rows], around, back))
        point, lower, upper, quantiles = (
            np.concatenate([getattr(part, name) for part in found])
            for name in ("mean", "lower", "upper", "quantiles")
        )
        return Prediction(point, lower, upper, quantiles=quantiles)

    return predict


def fit_constant(x: pd.DataFrame, y: Array, seed: int) -> Predict:
    """Predict the median of the training labels, with their distribution."""
    middle = float(np.median(y))
    return lambda x: _from_residuals(np.full(len(x), middle), y - middle, np.asarray)


def fit_lightgbm(x: pd.DataFrame, y: Array, seed: int) -> Predict:
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

    rows = lightgbm.Dataset(table(x), y, free_raw_data=False)
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


def _parts(n: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows that train and the fifth that calibrates."""
    return random_parts(n, CALIBRATION_SHARE, seed)


def fit_conformal(x: pd.DataFrame, y: Array, seed: int, *, fit: Fit) -> Predict:
    """Fit a model on four fifths of the rows and split-conformal intervals around its mean on the rest.

    crepes makes them; the width of the model's own interval is the difficulty of a row.
    """
    from crepes import ConformalRegressor

    kept, held = _parts(len(y), seed)
    predict = fit(x.iloc[kept].reset_index(drop=True), y[kept], seed)
    tiny = float(np.ptp(y)) * 1e-9 or 1e-9

    def difficulty(prediction: Prediction) -> Array:
        return np.maximum(prediction.upper - prediction.lower, tiny)

    on_held = predict(x.iloc[held].reset_index(drop=True))
    conformal = ConformalRegressor().fit(y[held] - on_held.mean, sigmas=difficulty(on_held))

    def predict_conformal(x: pd.DataFrame) -> Prediction:
        found = predict(x)
        ends = conformal.predict_int(found.mean, sigmas=difficulty(found), confidence=COVERAGE)
        return replace(found, lower=ends[:, 0], upper=ends[:, 1])

    return predict_conformal


# -- rows ----------------------------------------------------------------------------------------

REFERENCE, BEST = "catboost", "catboost-best"
RARE = "-rare"
"""End of the names of lines with the intervals that also cover rare labels."""
FORMS = (REFERENCE, "catboost-mae", "catboost-log", "catboost-quantiles")
"""The form of CatBoost with the lowest MAE on held-out training rows stands for `BEST` in a page."""
_MODELS: tuple[tuple[str, str, Fit], ...] = (
    (REFERENCE, "CatBoost", fit_form),
    ("tail", "TailRegressor", fit_tail),
    ("tail-none", "TailRegressor, base None", partial(fit_tail, base=None)),
    ("tail-pool", "TailRegressor, pool", partial(fit_tail, pool=True)),
    ("catboost-mae", "CatBoost, MAE", partial(fit_form, loss="MAE")),
    ("catboost-log", "CatBoost, log of skewed labels", partial(fit_form, log=True)),
    ("catboost-quantiles", "CatBoost, quantiles, CQR", fit_quantiles),
    ("catboost-cv", "CatBoost, CV+", fit_cross_validated),
    ("catboost-gaussian", "CatBoost, Gaussian", fit_gaussian),
    ("catboost-weighted", "CatBoost, Gaussian, label weights", partial(fit_gaussian, weighted=True)),
    ("catboost-conformal", "CatBoost, Gaussian, conformal", partial(fit_conformal, fit=fit_gaussian)),
    ("lightgbm", "LightGBM", fit_lightgbm),
    (
        "realmlp",
        "RealMLP",
        partial(fit_point, learn=partial(_pytabkit, name="RealMLP_TD_Regressor", folds=FOLDS)),
    ),
    ("tabm", "TabM", partial(fit_point, learn=partial(_pytabkit, name="TabM_D_Regressor", folds=1))),
    ("constant", "a constant", fit_constant),
)


def all_estimators() -> list[Estimator]:
    """Return every model."""
    return [Estimator(*row) for row in _MODELS]


def choose_estimators(names: Iterable[str]) -> list[Estimator]:
    """Return estimators by name; ``all`` are all of them."""
    known = {estimator.name: estimator for estimator in all_estimators()}
    chosen = [estimator for name in names for estimator in (known if name == "all" else [name])]
    for name in chosen:
        check_name("estimator", name, known)
    return [known[name] for name in dict.fromkeys(chosen)]
