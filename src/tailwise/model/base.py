"""Base regressors: the model whose prediction the network starts from (VIR:offset).

A base is cross-fitted. Each of five folds (of three, beyond 20,000 rows) is predicted by a model that was
fitted on the others, so the network trains on predictions that are as good as those for new rows. New rows
get the mean of these models. A base sees the matrix of `TablePreprocessor.matrix`: numbers, encoded
categories, dates and text, NaN where a value is missing. It sees latent labels
(`tailwise.distributions.transform`), standardised, so that predictions are equivariant to shifting and
scaling y; what it predicts is in label units.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from tailwise.distributions.transform import AnyTransform, Identity
from tailwise.labels.bins import LabelBins
from tailwise.lookup import nearest

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
MakeBase = Callable[[int], Any]

FOLDS = 5
MIN_ROWS = 100
"""With fewer rows, ``base="auto"`` means no base: each fold would be too small to learn from."""
AUTO = "catboost"
"""The base of ``base="auto"``, the best on the development tables (research/results/bases.md)."""
TREES = 1000
WAIT = 50
"""CatBoost stops after so many trees without a gain on the held-out fold (research/results/base-cost.md)."""
KEPT_ERRORS = 201
"""Out-of-fold errors of each fold that a base keeps for its intervals."""
MARGIN = 0.1
"""By how much the CRPS of the base must fall for ``"auto"`` to take logarithms."""
JUDGES = 2
"""Folds whose CRPS decides about logarithms (research/results/base-cost.md); others need no second base."""
SPREAD_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Levels of the quantiles that networks see of a base with `predict_quantiles(X, levels)`."""
LEAST_WEIGHT = 0.05
"""A regressor of a list with a smaller weight than this is left out, unless it predicts quantiles."""
LEVELS = 100
"""Errors around a prediction in the CRPS of a base."""
_CHUNK = 2048
"""Rows whose intervals are computed at a time, which bounds the memory."""


def _catboost(seed: int) -> Any:
    from catboost import CatBoostRegressor

    return CatBoostRegressor(
        iterations=TREES,
        early_stopping_rounds=WAIT,
        random_seed=seed % 2**31,
        thread_count=max(1, torch.get_num_threads() // FOLDS),  # folds are fitted side by side
        allow_const_label=True,  # the rows of a fold may have one label only
        allow_writing_files=False,
        verbose=False,
    )


def _lightgbm(seed: int) -> Any:
    from lightgbm import LGBMRegressor

    return LGBMRegressor(
        n_estimators=TREES,
        learning_rate=0.03,
        num_leaves=15,
        subsample=0.8,
        subsample_freq=1,
        colsample_bytree=0.8,
        random_state=seed % 2**31,
        deterministic=True,
        force_row_wise=True,
        n_jobs=torch.get_num_threads(),
        verbosity=-1,
    )


def _hist_gradient_boosting(seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(
        max_iter=400, learning_rate=0.05, early_stopping=False, random_state=seed % 2**31
    )


BASES: dict[str, MakeBase] = {
    "catboost": _catboost,
    "lightgbm": _lightgbm,
    "hist-gradient-boosting": _hist_gradient_boosting,
}
"""Bases by name: a function of a seed that makes an unfitted regressor."""
_PACKAGES = ("catboost", "lightgbm")
"""Bases that are packages of their own."""


def resolve_bases(base: Any, rows: int) -> list[MakeBase]:
    """Return a function for each regressor of the base that makes it; none for no base.

    `base` is ``"auto"``, a name in `BASES`, a scikit-learn regressor, a list of these, or None. An unknown
    name, a package that is not installed and an object that is not a regressor are errors.
    """
    if base is None:
        return []
    if not isinstance(base, list | tuple):
        return [] if isinstance(base, str) and base == "auto" and rows < MIN_ROWS else [_maker(base)]
    if not base:
        raise ValueError("base is an empty list: name a regressor, or pass None")
    return [_maker(one) for one in base]


def _maker(base: Any) -> MakeBase:
    if isinstance(base, str):
        name = AUTO if base == "auto" else base
        if name not in BASES:
            raise ValueError(f"unknown base {base!r}{nearest(base, ['auto', *BASES])}, or None")
        require_package(name)
        return BASES[name]
    if isinstance(base, type) or not (hasattr(base, "fit") and hasattr(base, "predict")):
        raise TypeError(
            f"base must be a name, a scikit-learn regressor with fit and predict, or None, not {base!r}"
        )
    clone(base)  # raises an error if it is not scikit-learn's
    return lambda seed: _seeded(clone(base), seed)


def require_package(name: str) -> None:
    """Raise an error that says what to install if the package of a base is missing."""
    if name in _PACKAGES and importlib.util.find_spec(name) is None:
        raise ImportError(
            f"base={name!r} needs the package {name}: pip install {name}, or choose "
            "base='hist-gradient-boosting' or base=None",
            name=name,
        )


def _seeded(regressor: Any, seed: int) -> Any:
    """Give a seed to a regressor that has none, so that the same `random_state` gives the same model."""
    parameters = regressor.get_params() if hasattr(regressor, "get_params") else {}
    free = {name: seed % 2**31 for name, value in parameters.items() if _is_seed(name) and value is None}
    return regressor.set_params(**free) if free else regressor


def _is_seed(name: str) -> bool:
    return name == "random_state" or name.endswith("__random_state")


def deal_folds(labels: Floats, seed: int, folds: int = FOLDS) -> Rows:
    """Return the fold of each row. Every label bin is spread over all folds. labels: (N,) -> (N,)

    >>> np.bincount(deal_folds(np.array([0.0] * 10 + [1.0] * 5), seed=0))
    array([3, 3, 3, 3, 3])
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    # Rows in random order within each bin, dealt out in turn.
    order = order[np.argsort(LabelBins.from_labels(labels).index(labels)[order], kind="stable")]
    fold = np.empty(len(labels), np.int64)
    fold[order] = np.arange(len(labels)) % folds
    return fold


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """The fitted models of one target: one per fold of each regressor."""

    models: tuple[Any, ...]
    """Those of the first regressor, then those of the next one."""
    location: float
    scale: float
    spread: float
    """Root mean square of the out-of-fold residuals, in label units."""
    errors: Floats
    """Quantiles of the absolute out-of-fold residuals of latent labels in each fold, ascending. (folds, K)"""
    transform: AnyTransform = Identity()
    """From labels to the latent ones that the models predict."""
    weights: tuple[float, ...] = (1.0,)
    """Of the regressors; they sum to 1."""

    @property
    def shares(self) -> Floats:
        """The share of each model in a prediction. They sum to 1."""
        folds = len(self.models) // len(self.weights)
        return np.repeat(self.weights, folds) / folds

    def _each(self, matrix: Floats) -> Floats:
        """Return what the models of each fold predict of standardised labels. (N, F) -> (folds, N)"""
        every = np.stack([predicted(model, matrix) for model in self.models])
        return np.tensordot(self.weights, every.reshape(len(self.weights), -1, len(matrix)), 1)

    def spreads(self, matrix: Floats) -> Floats:
        """Return quantiles of models that predict them, less their predictions, averaged over folds.

        In standard deviations of the latent labels. (N, F) -> (N, 5) for each such regressor, or (N, 0)
        """
        folds = len(self.models) // len(self.weights)
        every = [spread(model, matrix) for model in self.models]
        return np.hstack([np.mean(every[k : k + folds], axis=0) for k in range(0, len(every), folds)])

    def predict(self, matrix: Floats) -> Floats:
        """Return the mean of the models' predictions, in label units. (N, F) -> (N,)"""
        return self.transform.labels(self.latent(matrix))

    def latent(self, matrix: Floats) -> Floats:
        """Return the mean of the models' predictions of latent labels. (N, F) -> (N,)"""
        return np.asarray(self.location + self.scale * self._each(matrix).mean(axis=0))

    def variance(self, matrix: Floats) -> Floats:
        """Return the variance between the models' predictions of latent labels. (N, F) -> (N,)"""
        return np.asarray(self.scale**2 * self._each(matrix).var(axis=0))

    def intervals(self, matrix: Floats, levels: Sequence[float]) -> list[tuple[Floats, Floats]]:
        """Return the intervals of CV+ (Barber et al., 2021, arXiv:1905.02928) at each level.

        The ends are quantiles of each fold's prediction minus and plus the errors for the rows of that fold.
        (N, F) -> lower and upper ends for each level, (N,) each
        """
        each, count = self.location + self.scale * self._each(matrix), self.errors.size
        place = np.minimum(np.ceil(np.multiply(levels, count + 1)).astype(np.int64), count) - 1
        ends = np.empty((2, len(levels), each.shape[1]))
        for start in range(0, each.shape[1], _CHUNK):
            rows = slice(start, start + _CHUNK)
            around = each[:, rows, None], self.errors[:, None]
            for side, sums in enumerate((-np.subtract(*around), np.add(*around))):
                ordered = np.sort(np.moveaxis(sums, 0, 1).reshape(sums.shape[1], count), axis=1)
                ends[side, :, rows] = ordered[:, place].T
        lower, upper = self.transform.labels(-ends[0]), self.transform.labels(ends[1])
        return list(zip(lower, upper, strict=True))


class CrossFit:
    """Fits the base of one target: a model for each fold, on the rows of the others."""

    def __init__(
        self,
        make: MakeBase,
        matrix: Floats,
        labels: Floats,
        weight: Floats,
        fold: Rows,
        seed: int,
        transform: AnyTransform = Identity(),
    ) -> None:
        """matrix: (N, F); labels, weight and fold: (N,)"""
        self.make, self.matrix, self.labels, self.weight = make, matrix, labels, weight
        self.stops = make is _catboost
        """Whether the fold that is held out says when a model has enough trees."""
        self.fold, self.seed, self.transform = fold, seed, transform
        self.latent = transform.latents(labels)
        self.location, self.scale = float(np.mean(self.latent)), float(np.std(self.latent)) or 1.0
        self.models: dict[int, Any] = {}
        self.held_out = np.full(len(labels), np.nan)
        """Out-of-fold predictions of latent labels, NaN for folds that are not fitted yet. (N,)"""
        self.spreads: dict[int, Floats] = {}
        """Out-of-fold quantiles of each fold, as `spread` returns them."""

    def fit(self, folds: Iterable[int], *, every_tree: bool = False) -> CrossFit:
        """Fit the models of these folds that are not there yet; CatBoost's side by side, one thread each.

        With `every_tree` CatBoost does not stop; `stopped` then drops the trees behind the best one.
        """
        models = {k: self.make(self.seed + k) for k in folds if k not in self.models}
        if every_tree and self.stops:
            for model in models.values():
                model.set_params(early_stopping_rounds=None, use_best_model=False)
        jobs = torch.get_num_threads() if self.stops else 1
        with ThreadPoolExecutor(min(jobs, len(models) or 1)) as pool:
            list(pool.map(self._fit, models, models.values()))
        for k, model in models.items():
            self._keep(k, model)
        return self

    def stopped(self) -> CrossFit:
        """Drop the trees of CatBoost behind the best one for the held-out fold."""
        for k, model in self.models.items() if self.stops else ():
            if model.tree_count_ > model.get_best_iteration() + 1:
                model.shrink(model.get_best_iteration() + 1)
                self._keep(k, model)
        return self

    def _fit(self, k: int, model: Any) -> None:
        """Fit a model to the rows outside a fold."""
        train, standardized = self.fold != k, (self.latent - self.location) / self.scale
        weight = None if (self.weight == self.weight[0]).all() else self.weight
        if self.stops:
            _fit_stopped(model, self.matrix, standardized, weight, train)
        elif weight is None:
            model.fit(self.matrix[train], standardized[train])
        else:
            _fit_weighted(model, self.matrix[train], standardized[train], weight[train])

    def _keep(self, k: int, model: Any) -> None:
        """Keep the model of a fold, with its prediction and its `spread` inside the fold."""
        inside = self.matrix[self.fold == k]
        self.held_out[self.fold == k] = self.location + self.scale * predicted(model, inside)
        self.models[k], self.spreads[k] = model, spread(model, inside)

    @property
    def crps(self) -> float:
        """The out-of-fold CRPS of the folds that are fitted."""
        rows = ~np.isnan(self.held_out)
        predictions = self.transform.labels(self.held_out[rows])
        return out_of_fold_crps(self.transform, predictions, self.labels[rows])

    def whole(self) -> tuple[CrossFitted, Floats]:
        """Fit what is missing; return the base with its out-of-fold predictions. (N,)"""
        base, columns = joined([self])
        return base, columns[:, 0]


def joined(fits: Sequence[CrossFit]) -> tuple[CrossFitted, Floats]:
    """Return one base of several regressors with its out-of-fold predictions and `spreads`. (N, 1 + Q)

    The weights are those of the least squared error out of fold, none negative, with a sum of 1.
    """
    first = fits[0]
    folds, latent, transform = range(int(first.fold.max()) + 1), first.latent, first.transform
    for one in fits:
        one.fit(folds)
    weights = _weights(np.stack([one.held_out for one in fits]), latent, first.weight)
    kept = [k for k, one in enumerate(fits) if weights[k] > 0 or one.spreads[0].shape[1]]
    fits, weights = [fits[k] for k in kept], weights[kept]
    held_out = weights @ np.stack([one.held_out for one in fits])
    predictions = transform.labels(held_out)
    columns = [predictions[:, None]]
    for one in fits:
        beside = np.empty((len(latent), one.spreads[0].shape[1]))
        for k in folds:
            beside[first.fold == k] = one.spreads[k]
        columns.append(beside)
    error = math.sqrt(np.average((first.labels - predictions) ** 2, weights=first.weight))
    levels, errors = np.linspace(0, 1, KEPT_ERRORS), np.abs(latent - held_out)
    quantiles = np.stack([np.quantile(errors[first.fold == k], levels, method="higher") for k in folds])
    models = tuple(one.models[k] for one in fits for k in folds)
    about = first.location, first.scale, error, quantiles, transform, tuple(weights.tolist())
    return CrossFitted(models, *about), np.hstack(columns)


def _weights(held_out: Floats, latent: Floats, weight: Floats) -> Floats:
    """Return the weights of `joined`; those below `LEAST_WEIGHT` are 0. (R, N), (N,), (N,) -> (R,)"""
    if len(held_out) == 1:
        return np.ones(1)
    root, center = np.sqrt(weight), held_out.mean(axis=0)
    apart, rest = (held_out - center) * root, (latent - center) * root
    # A row with a large factor holds the sum at 1.
    strict = 1e4 * max(float(np.linalg.norm(apart)), float(np.linalg.norm(rest)), 1e-300)
    found, _ = nnls(np.vstack([apart.T, np.full(len(apart), strict)]), np.append(rest, strict))
    found = np.where(found < LEAST_WEIGHT * found.sum(), 0.0, found)
    return np.asarray(found / found.sum())


def _fit_stopped(
    model: Any, matrix: Floats, labels: Floats, weight: Floats | None, train: NDArray[np.bool_]
) -> None:
    """Fit CatBoost to the training rows, up to the tree with the least error for the others. (N, F), (N,)"""
    from catboost import Pool

    rows, held_out = (
        Pool(matrix[part], labels[part], weight=None if weight is None else weight[part])
        for part in (train, ~train)
    )
    if np.ptp(labels[train]) == 0:
        model.set_params(bootstrap_type="No")  # the default samples rows by their gradients, which are all 0
    model.fit(rows, eval_set=held_out)


def _fit_weighted(model: Any, matrix: Floats, labels: Floats, weight: Floats) -> None:
    """Fit with weights. A base that takes none is fitted on repeated rows if weights are whole numbers."""
    last = getattr(model, "steps", [("", model)])[-1]
    if has_fit_parameter(last[1], "sample_weight"):
        prefix = f"{last[0]}__" if last[0] else ""
        model.fit(matrix, labels, **{f"{prefix}sample_weight": weight})
        return
    if (weight % 1 != 0).any():
        raise ValueError(
            f"the base {type(model).__name__} takes no sample_weight: leave the weights out, give whole "
            "numbers, or choose another base"
        )
    rows = np.repeat(np.arange(len(labels)), weight.astype(np.int64))
    model.fit(matrix[rows], labels[rows])


def predicted(model: Any, matrix: Floats) -> Floats:
    """Return a base's prediction as one finite number per row; anything else is an error. (N, F) -> (N,)"""
    prediction, rows = np.asarray(model.predict(matrix), np.float64), len(matrix)
    if prediction.shape == (rows, 1):
        prediction = prediction[:, 0]
    name = f"the base {type(model).__name__}"
    if prediction.shape != (rows,):
        raise ValueError(f"{name} predicted an array of shape {prediction.shape} for {rows} rows")
    bad = ~np.isfinite(prediction)
    if bad.any():
        raise ValueError(f"{name} predicted {prediction[bad][0]} for {int(bad.sum())} of {rows} rows")
    return prediction


def spread(model: Any, matrix: Floats) -> Floats:
    """Return quantiles of a model that predicts them, less its prediction. (N, F) -> (N, 5), or (N, 0)"""
    if not hasattr(model, "predict_quantiles"):
        return np.empty((len(matrix), 0))
    quantiles = np.asarray(model.predict_quantiles(matrix, list(SPREAD_LEVELS)), np.float64)
    wanted = len(matrix), len(SPREAD_LEVELS)
    if quantiles.shape != wanted or not np.isfinite(quantiles).all():
        raise ValueError(
            f"predict_quantiles of the base {type(model).__name__} must return finite numbers of shape "
            f"{wanted}, one for each row and level"
        )
    return quantiles - predicted(model, matrix)[:, None]


def given_predictions(base_prediction: Any, shape: tuple[int, int]) -> Floats:
    """Return base predictions that a user made, checked against the shape of the labels. (N, T)"""
    values = np.asarray(base_prediction, np.float64)
    wanted = shape[:1] if shape[1] == 1 else shape
    if values.shape not in (wanted, (*wanted, 1)):
        raise ValueError(f"base_prediction has shape {values.shape}, not {wanted}: one value per label")
    bad = ~np.isfinite(values)
    if bad.any():
        row = int(np.argwhere(bad)[0][0])
        raise ValueError(f"base_prediction is {values[bad][0]} in row {row} ({int(bad.sum())} such values)")
    return values.reshape(shape)


@dataclass(frozen=True)
class Base:
    """Where the networks start from (VIR:offset): a cross-fitted base for each target, or given predictions.

    `Base()` is none: the networks are on their own.
    """

    targets: tuple[CrossFitted, ...] = ()
    given: int = 0
    """Number of targets of which the user gives predictions with every call; `targets` is empty then."""

    @property
    def is_identity(self) -> bool:
        """Whether there is no base."""
        return not (self.targets or self.given)

    def offset(self, matrix: Floats, rows: int, given: ArrayLike | None = None) -> Floats:
        """Return the prediction of each label of new rows, and `spreads` of the base, for networks only.

        (N, F) -> (N, T + Q), or (N, 0) without a base
        """
        if self.given and given is None:
            raise ValueError("this model was fitted with base_prediction: pass it for these rows as well")
        if self.given:
            return given_predictions(given, (rows, self.given))
        if given is not None:
            raise ValueError("this model was fitted without base_prediction: leave it out")
        predictions = (base.predict(matrix)[:, None] for base in self.targets)
        spreads = (base.spreads(matrix) for base in self.targets)
        return np.hstack([np.empty((rows, 0)), *predictions, *spreads])


def fit_base(
    makers: Sequence[MakeBase],
    matrix: Floats,
    labels: Floats,
    weight: Floats,
    fold: Rows,
    seed: int,
    choices: Sequence[Sequence[AnyTransform]],
) -> tuple[Base, Floats, list[AnyTransform]]:
    """Fit the base of each target; return it with its `offset` out of fold, and the transform of each target.

    There is none without a column that varies, which CatBoost refuses. `choices` has the transforms to choose
    from for each target: the first regressor is fitted on each, and the best is kept, as `_better` says.
    Without a base the first one is taken. labels: (N, T) -> (N, T + Q)
    """
    nothing = Base(), np.empty((len(labels), 0)), [choice[0] for choice in choices]
    if not makers:
        return nothing
    if len(labels) < 2 or fold.max() == 0:
        raise ValueError("a base needs more than one sample (equal rows count once): pass base=None")
    if ((matrix == matrix[0]) | (np.isnan(matrix) & np.isnan(matrix[0]))).all():
        return nothing
    fitted = []
    for choice, column in zip(choices, labels.T, strict=True):
        cross_fit = partial(CrossFit, matrix=matrix, labels=column, weight=weight, fold=fold, seed=seed)
        first = _better([cross_fit(makers[0], transform=transform) for transform in choice])
        fitted.append(joined([first, *(cross_fit(m, transform=first.transform) for m in makers[1:])]))
    bases, columns = zip(*fitted, strict=True)
    offset = np.hstack([*(c[:, :1] for c in columns), *(c[:, 1:] for c in columns)])
    return Base(bases), offset, [base.transform for base in bases]


def _better(fits: Sequence[CrossFit]) -> CrossFit:
    """Return the first one, unless the CRPS of another is lower by `MARGIN` on the first folds.

    All trees judge: those that stop gain more on labels than on logarithms (research/results/base-cost.md).
    """
    if len(fits) == 1:
        return fits[0]
    scores = [fit.fit(range(JUDGES), every_tree=True).crps for fit in fits]
    best = int(np.argmin(scores))
    return fits[best if scores[best] < (1 - MARGIN) * scores[0] else 0].stopped()


def out_of_fold_crps(transform: AnyTransform, predictions: Floats, labels: Floats) -> float:
    """Return the mean CRPS of predictions with the latent errors of all rows around them. (N,) each"""
    latent = transform.limited(predictions)
    errors = np.quantile(transform.latents(labels) - latent, (np.arange(LEVELS) + 0.5) / LEVELS)
    total = 0.0
    for rows in np.array_split(np.arange(len(labels)), len(labels) // 10_000 + 1):
        draws = transform.labels(latent[rows, None] + errors)  # ascending in each row
        below = np.arange(1, LEVELS) / LEVELS
        spread = np.diff(draws, axis=1) @ (below * (1 - below))
        total += float((np.abs(draws - labels[rows, None]).mean(1) - spread).sum())
    return total / len(labels)
