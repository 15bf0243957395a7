"""A model and its baselines on rows that none of them has seen, and every figure made from that.

Rows are encoded and predicted once. Verdict, charts, page, JSON and comparisons read the same `Scores`, which
compute each figure once. A new figure is a row of `FIGURES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray

from tailwise.calibration.calibration import Calibration, Labels, Predicted
from tailwise.calibration.interval_scores import constant_interval
from tailwise.distributions.members import Distribution, Normal
from tailwise.distributions.transform import Log
from tailwise.labels.bins import LabelBins, checked_labels
from tailwise.labels.kernels import label_weights
from tailwise.labels.prior import rarest
from tailwise.methods import get_method
from tailwise.metrics.regions import REGIONS, by_region
from tailwise.metrics.scores import Sparsification, sparsification, winkler
from tailwise.model.base import AUTO, CrossFit, CrossFitted, deal_folds, resolve_bases
from tailwise.model.settings import candidates
from tailwise.model.split import deal_group_folds, group_codes
from tailwise.report.wording import number, say
from tailwise.tables.inputs import take_rows
from tailwise.tables.rows import merge_equal_rows

if TYPE_CHECKING:
    from tailwise.estimator import TailRegressor
    from tailwise.model.inputs import Encoded

Floats = NDArray[np.float64]
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Interval levels of a reliability diagram."""
MIN_POINT_ROWS = 5
"""Each point of a curve along the label averages at least this many test rows."""
EMPHASES = tuple(k / 10 for k in range(11))
"""Settings of the dial that a page shows, besides the one in use."""
MIN_DIAL_ROWS = 20
"""With fewer test rows there are too few rare ones to draw a curve."""


class Figure(NamedTuple):
    """A figure of a region: its heading, its text, and the mean over rows that it is, if it is one."""

    title: str
    text: Callable[[float], str] = number
    rows: Callable[[Scores], Any] | None = None


DIALLED: Mapping[str, Callable[[Scores], Any]] = {
    "mae": lambda scores: scores.error,
    "coverage": lambda scores: scores.inside,
    "width": lambda scores: scores.width,
    "interval_score": lambda scores: scores.interval_score,
}
"""Figures that the slider of a page turns: means of these rows."""
FIGURES: Mapping[str, Figure] = {
    "mae": Figure("MAE"),
    "rmse": Figure("RMSE"),
    "nll": Figure("NLL"),
    "crps": Figure("CRPS"),
    "ause": Figure("AUSE"),
    "bias": Figure("bias", rows=lambda scores: scores.mean - scores.y),
    "coverage": Figure("coverage", "{:.1%}".format, DIALLED["coverage"]),
    "width": Figure("width", rows=DIALLED["width"]),
    "interval_score": Figure("interval score", rows=DIALLED["interval_score"]),
}
"""The figures of a region, by name; those without a function of rows are metrics of that name."""
METRICS = tuple(name for name, figure in FIGURES.items() if figure.rows is None)
PRINTED = ("mae", "rmse", "nll", "crps", "coverage", "width", "interval_score")
"""Figures that a command prints."""
SHOWN = ("mae", "rmse", "coverage", "width", "interval_score", "crps", "bias", "nll", "ause")
"""Figures in the table of a page."""


class Baseline(NamedTuple):
    """What a baseline predicts, with its intervals by level."""

    distribution: Distribution  # (N,)
    ends: Mapping[float, tuple[Floats, Floats]]  # (N,) each


@dataclass(frozen=True, eq=False)
class Scores:
    """Test labels with one model's predictions of them; the region of a row is that of its true label."""

    title: str
    y: Floats  # (N,)
    labels: Labels
    """The training labels, by which regions go."""
    predicted: Predicted | Baseline
    coverage: float = 0.9
    encoded: Encoded | None = None
    """The rows as the model takes them."""

    @property
    def bins(self) -> LabelBins:
        """Bins of the training labels."""
        return self.labels.bins

    @property
    def distribution(self) -> Distribution:
        """The calibrated predictions. (N,)"""
        return self.predicted.distribution

    @property
    def calibration(self) -> Calibration | None:
        """What made predictions and intervals; baselines, which have no dial, have none."""
        return None if isinstance(self.predicted, Baseline) else self.predicted.calibration

    @cached_property
    def emphasis(self) -> float:
        """Emphasis on rare labels; NaN under a label prior."""
        return 0.0 if self.calibration is None else self.calibration.emphasis

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """Return lower and upper ends of the intervals of a level. (N,) each"""
        if isinstance(self.predicted, Baseline):
            return self.predicted.ends[level]
        distribution, calibration, raw = self.predicted
        lower, upper = calibration.ends(distribution, level, raw.groups)
        return lower.double().numpy(), upper.double().numpy()

    @cached_property
    def lower(self) -> Floats:
        """Lower ends of the intervals. (N,)"""
        return self.interval(self.coverage)[0]

    @cached_property
    def upper(self) -> Floats:
        """Upper ends of the intervals. (N,)"""
        return self.interval(self.coverage)[1]

    @cached_property
    def whole(self) -> bool:
        """Whether all labels are whole numbers, so that a label is written without decimals."""
        return bool((self.y == np.rint(self.y)).all())

    def label(self, value: float) -> str:
        """Return a label, or a prediction of one, as text; whole if all labels are."""
        return f"{value:,.0f}" if self.whole else number(value)

    @cached_property
    def mean(self) -> Floats:
        """Predicted labels. (N,)"""
        return np.asarray(self.distribution.point.double().numpy())

    @cached_property
    def error(self) -> Floats:
        """Absolute errors. (N,)"""
        return np.asarray(np.abs(self.y - self.mean))

    @cached_property
    def inside(self) -> NDArray[np.bool_]:
        """Whether each interval contains its label. (N,)"""
        return np.asarray((self.y >= self.lower) & (self.y <= self.upper))

    @cached_property
    def width(self) -> Floats:
        """Widths of the intervals. (N,)"""
        return np.asarray(self.upper - self.lower)

    @cached_property
    def interval_score(self) -> Floats:
        """Winkler's interval score of each row: small for intervals that are narrow and hold. (N,)"""
        ends = torch.from_numpy(self.lower), torch.from_numpy(self.upper)
        return np.asarray(winkler(*ends, torch.from_numpy(self.y), self.coverage).numpy())

    @cached_property
    def region(self) -> NDArray[np.str_]:
        """Region of each true label. (N,)"""
        return self.labels.region(self.y)

    @cached_property
    def rare(self) -> NDArray[np.bool_]:
        """The rarest labels, by their density in training. (N,)"""
        return rarest(self.y, self.labels.density)

    def mask(self, region: str) -> NDArray[np.bool_]:
        """Whether each row belongs to a region; every row belongs to ``all``. (N,)"""
        return np.ones(self.y.size, bool) if region == "all" else self.region == region

    @property
    def regions(self) -> list[str]:
        """Those of many, medium and few that have test rows."""
        return [region for region in REGIONS[1:] if self.mask(region).any()]

    @cached_property
    def by_region(self) -> pd.DataFrame:
        """Figures for all, many, medium and few: n, share (of the test rows) and those of `FIGURES`."""
        table = by_region(self.distribution, self.y, self.bins, METRICS, **self.labels.shots)
        table.insert(6, "share", table["n"] / table["n"].iloc[0])
        for name, figure in FIGURES.items():
            if figure.rows is not None:
                values = figure.rows(self)
                table[name] = [
                    float(values[rows].mean()) if rows.any() else math.nan for rows in map(self.mask, REGIONS)
                ]
        return table

    def at(self, emphasis: float) -> Scores:
        """Return the scores of the same model and rows at another emphasis."""
        assert isinstance(self.predicted, Predicted)
        return replace(self, predicted=self.predicted.calibration.at(emphasis)(self.predicted.raw))

    @cached_property
    def dial(self) -> Dial | None:
        """The figures along the dial; None for few test rows and for models without a dial."""
        if self.calibration is None or self.y.size < MIN_DIAL_ROWS:
            return None
        settings = sorted({*EMPHASES, *(() if math.isnan(self.emphasis) else (self.emphasis,))})
        return Dial(self, tuple(settings), tuple(map(self.at, settings)))

    def along_label(self, min_rows: int = MIN_POINT_ROWS) -> pd.DataFrame:
        """Return figures along the label; each point pools neighbouring bins until it has `min_rows` rows.

        Columns: center (mean label), n and mae.
        """
        order, starts = np.argsort(self.y, kind="stable"), [0]
        for change in np.flatnonzero(np.diff(self.bins.index(self.y[order]))) + 1:
            if min(change - starts[-1], order.size - change) >= min_rows:
                starts.append(int(change))
        sizes = np.diff([*starts, order.size])
        center, mae = (np.add.reduceat(values[order], starts) / sizes for values in (self.y, self.error))
        return pd.DataFrame({"center": center, "n": sizes, "mae": mae})

    def reliability(self, region: str = "all") -> Floats:
        """Return the share of intervals that contain the label, at each of `LEVELS`. (L,)"""
        rows = self.mask(region)
        return np.array([covered[rows].mean() if rows.any() else math.nan for covered in self._covered])

    @cached_property
    def _covered(self) -> list[NDArray[np.bool_]]:
        intervals = map(self.interval, LEVELS)
        return [(self.y >= lower) & (self.y <= upper) for lower, upper in intervals]

    def sparsification(self, points: int = 400) -> Sparsification:
        """Return the error of the rows that remain as the least certain are removed, at most `points` points.

        The curve ends where 1% of the rows remain, or ten rows: a mean over fewer is noise.
        """
        curves = sparsification(self.distribution, self.y)
        last = max(curves.error.size - max(10, curves.error.size // 100), 0)
        keep = np.unique(np.linspace(0, last, points).astype(np.int64))
        return Sparsification(*(part[keep] for part in curves))


@dataclass(frozen=True, eq=False)
class Dial:
    """A model's predictions of the test rows at every emphasis (VIR:dial)."""

    scores: Scores
    settings: tuple[float, ...]  # ascending: EMPHASES and the one in use
    turned: tuple[Scores, ...]  # at each setting

    def point(self, scores: Scores) -> tuple[float, float]:
        """Return the error over all rows and over rare rows of a model on the same test rows."""
        return float(scores.error.mean()), float(scores.error[self.scores.rare].mean())

    @cached_property
    def curve(self) -> tuple[Floats, Floats]:
        """Error over all rows and over rare rows at each setting. (E,) each"""
        overall, rare = np.transpose([self.point(scores) for scores in self.turned])
        return overall, rare

    @property
    def used(self) -> int:
        """The place of the setting in use; under a label prior, which is none of them, the first."""
        return 0 if math.isnan(self.scores.emphasis) else self.settings.index(self.scores.emphasis)

    @cached_property
    def figures(self) -> dict[str, dict[str, list[str]]]:
        """The `DIALLED` figures of each region that has test rows, at each setting, as text."""
        return {
            region: {
                name: [FIGURES[name].text(float(of(s)[rows].mean())) for s in self.turned]
                for name, of in DIALLED.items()
            }
            for region in ("all", *self.scores.regions)
            for rows in [self.scores.mask(region)]
        }

    @property
    def changes(self) -> dict[str, tuple[float, float]]:
        """Error for rare and for other labels: now and at emphasis 0, or where 0 is in use at 1 and at 0."""
        plain = self.turned[0].error
        now = (self.turned[-1] if self.scores.emphasis == 0 else self.scores).error
        groups = {"rare": self.scores.rare, "others": ~self.scores.rare}
        return {name: (float(now[rows].mean()), float(plain[rows].mean())) for name, rows in groups.items()}

    @property
    def setting(self) -> str:
        """The setting in use, in words."""
        return say("dial", "setting", self)

    @property
    def text(self) -> str:
        """What the setting in use gains for rare labels and costs for the others."""
        return say("dial", "text", self)


def title_of(model: TailRegressor) -> str:
    """Return what pages call a model: TailRegressor, or its method unless that is the default."""
    return "TailRegressor" if model.method == type(model)().method else get_method(model.method).title


class Seen:
    """Rows of a table as one model sees them: encoded and predicted once, for all targets and settings."""

    def __init__(self, model: TailRegressor, X: Any) -> None:
        self.title, self.model = title_of(model), model.model_
        self.encoded = self.model.encode(X)
        self.raw = self.model.raw(self.encoded)

    def scores(
        self,
        y: Any,
        coverage: float = 0.9,
        target: int | None = None,
        *,
        emphasis: float | None = None,
        label_prior: Any = None,
    ) -> Scores:
        """Return the predictions of one target with its labels, under an emphasis or a label prior.

        `target` is the number of the target of a model with several.
        """
        if target is None and len(self.raw) > 1:
            raise ValueError(f"the model has {len(self.raw)} targets: choose one of them by target=")
        calibration = self.model.at(emphasis, label_prior).targets[target or 0]
        predicted = calibration(self.raw[target or 0])
        predicted.interval(coverage)  # warns if too few rows were held out for such intervals
        labels = calibration.labels
        return Scores(self.title, checked_labels(y), labels, predicted, coverage, self.encoded)


# -- a model beside its baselines ------------------------------------------------------------------

OTHER, BOOSTER, CONSTANT = "baseline", "base", "constant"
"""Baselines of a model, as JSON names them, in the order in which they are shown: a second model, boosted
trees alone, and the median of the training labels with an interval of their quantiles."""
MIN_BOOSTED_ROWS = 10
"""With fewer rows no trees are fitted: their folds would have one row each."""
_TITLES = {"CatBoostRegressor": "CatBoost"} | dict.fromkeys(
    ("LGBMRegressor", "HistGradientBoostingRegressor", "BoostedTrees"), "boosted trees"
)


@dataclass(frozen=True, eq=False)
class Lineup:
    """A model and its baselines on the same test rows; regions go by the training labels of the model."""

    ours: Scores
    baselines: Mapping[str, Scores] = field(default_factory=dict)

    @property
    def booster(self) -> Scores | None:
        """Boosted trees, if there are any."""
        return self.baselines.get(BOOSTER)

    @property
    def constant(self) -> Scores | None:
        """The constant prediction with a constant interval, if there is one."""
        return self.baselines.get(CONSTANT)

    @property
    def rivals(self) -> list[Scores]:
        """The baselines that learn from the inputs."""
        return [scores for name, scores in self.baselines.items() if name != CONSTANT]

    @property
    def all(self) -> list[Scores]:
        """The model and every baseline."""
        return [self.ours, *self.baselines.values()]


def line_up(
    model: TailRegressor,
    rows: Seen,
    y: Any,
    coverage: float = 0.9,
    *,
    target: int = 0,
    other: Scores | None = None,
    **settings: Any,
) -> Lineup:
    """Score a model and its baselines on rows that none of them has seen.

    Baselines are those that the model holds, so every command that measures it weighs the same ones, and
    `other`, a second model on the same rows. `settings` are further ones of `Seen.scores`.
    """
    ours, fitted = rows.scores(y, coverage, target, **settings), model.model_
    trees = fitted.rivals or fitted.base.targets
    scored = {
        OTHER: None if other is None else replace(other, labels=ours.labels),
        BOOSTER: score_trees(ours, trees[target]) if trees else None,
        CONSTANT: score_constant(ours),
    }
    return Lineup(ours, {name: scores for name, scores in scored.items() if scores is not None})


def fit_rival(
    model: TailRegressor,
    inputs: Any,
    labels: ArrayLike,
    weights: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    *,
    weighted: bool = False,
) -> CrossFitted | None:
    """Cross-fit the model's kind of base on its training rows, CatBoost if it has none, to compare with.

    The trees learn the label or, if labels are skewed and never negative, its logarithm, whichever has the
    smaller out-of-fold CRPS; they are the model's base if it learned the same. With `weighted` they learn the
    label, and each row is weighted by its rarity (SQINV). None with too few rows, if no column varies, or
    for inputs that are no table.
    """
    if not model.model_.inputs.is_table:
        return None
    y = checked_labels(labels)
    rows, weight = merge_equal_rows(inputs, y, weights)
    y, matrix = y[rows], model.model_.encode(take_rows(inputs, rows)).matrix
    if len(rows) < MIN_BOOSTED_ROWS or ((matrix == matrix[0]) | np.isnan(matrix)).all():
        return None
    seed = model.random_state if isinstance(model.random_state, int) else 0
    fold = deal_folds(y, seed)
    if groups is not None:
        fold = deal_group_folds(y, group_codes(groups, np.size(groups))[rows], seed)
    make, *_ = resolve_bases(AUTO if model.base is None else model.base, max(len(rows), 10**6))
    if weighted:
        bins = model.model_.bins[0]
        weight = weight * label_weights(bins)[bins.index(y)]
        return CrossFit(make, matrix, y, weight, fold, seed).whole()[0]
    base, transforms = model.model_.base.targets, candidates("auto", y)
    if base and (len(transforms) == 1 or model.target_transform == "auto"):
        return base[0]
    folds = range(fold.max() + 1)
    fits = [CrossFit(make, matrix, y, weight, fold, seed, transform) for transform in transforms]
    best = min(fits, key=lambda fit: fit.fit(folds).crps)
    return base[0] if base and base[0].transform == best.transform else best.whole()[0]


def score_trees(ours: Scores, trees: CrossFitted, *, weighted: bool = False) -> Scores:
    """Return what trees predict of the same rows, with the intervals of CV+ within the bounds of labels."""
    assert ours.encoded is not None
    labels, matrix, levels = ours.labels, ours.encoded.matrix, [ours.coverage, *LEVELS]
    title = f"{'weighted ' * weighted}{base_title(trees.models[0])}"
    title += " of the logarithm" * isinstance(trees.transform, Log)
    ends = {}
    for level, both in zip(levels, trees.intervals(matrix, levels), strict=True):
        possible = labels.support.between(*(labels.limits.clip(torch.from_numpy(end)) for end in both))
        ends[level] = possible[0].numpy(), possible[1].numpy()
    distribution = Normal(torch.from_numpy(trees.predict(matrix)), trees.spread**2)
    return replace(ours, title=title, predicted=Baseline(distribution, ends))


def base_title(model: Any) -> str:
    """Return what a fitted base is called, the same before and after it was in a file."""
    if hasattr(model, "coefficients"):  # from a file
        return "linear model"
    last = getattr(model, "steps", [("", model)])[-1][1]
    return _TITLES.get(name := type(last).__name__, "linear model" if hasattr(last, "coef_") else name)


def score_constant(ours: Scores) -> Scores:
    """Return the median of the training labels as the prediction of every row, with their quantiles."""
    rows, labels = np.ones(ours.y.size), ours.labels.quantiles
    ends = {}
    for level in (ours.coverage, *LEVELS):
        low, high = constant_interval(labels, level)
        ends[level] = low * rows, high * rows
    middle = torch.from_numpy(np.quantile(labels, 0.5, method="inverted_cdf") * rows)
    distribution = Normal(middle, max(float(labels.var()), 1e-12))
    return replace(ours, title="constant", predicted=Baseline(distribution, ends))
