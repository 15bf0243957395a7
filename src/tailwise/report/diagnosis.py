"""What a label distribution looks like, and what to do about its imbalance.

`diagnose` measures how evenly the labels fill their range, finds spikes, heavy tails, skew and empty
stretches, and says in words what to do, which may be nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from tailwise.labels.bins import LabelBins, checked_labels
from tailwise.metrics.regions import REGIONS
from tailwise.report.wording import say, sentences, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Balance = Literal[
    "constant", "too few to tell", "balanced", "mildly imbalanced", "imbalanced", "strongly imbalanced"
]

BALANCED_EVENNESS = 0.8
STRONG_EVENNESS = 1 / 3
RARE_RANGE = 0.05
"""Labels are balanced if they are even and rare on at most this share of their range."""
_SPIKE_SHARE, _SPIKE_RATIO = 0.1, 3.0
_SKEWED = 1.0
_BELOW_ZERO = 2.33  # standard deviations from the mean of a Normal to its lowest 1%
_TOP_RATING = 10
_LOG_BINS, _WIDE = 20, 10.0  # below this ratio log-scale edges are hardly finer, and may round to one


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What `diagnose` found. Shares are between 0 and 1; regions are many, medium and few.

    `evenness` is exp(entropy) of the bins' shares, divided by the number of bins: 1 for uniform labels,
    0.1 for labels that are uniform over a tenth of the range. For `evenness` and `rare_range`,
    neighbouring bins are merged until an even spread would put `few` labels into each, so that a
    small data set is not called imbalanced because it is small. A bin is rare if it has fewer than
    `few` labels, less than half its even share, and fewer than chance explains.
    """

    bins: LabelBins
    n: int
    many: int
    few: int
    low: float  # smallest label
    high: float  # largest label
    labels_by_region: dict[str, int]
    bins_by_region: dict[str, int]
    range_by_region: dict[str, float]  # share of the label range
    evenness: float
    ratio: float  # count of the fullest bin over the smallest count above 0
    rare_range: float  # share of the range with fewer than `few` labels and far less than an even share
    empty_range: float  # share of the range in bins without a label
    top_share: float  # share of the labels in the fullest bin
    spike: tuple[float, float] | None  # a very common value and its share of the labels
    skewness: float
    tail_range: float  # share of the range that the outermost 1% of the labels span
    log_evenness: float | None  # evenness of the labels above 0 on a log scale, if skewed to the right
    distinct: int  # number of distinct values
    bounds: tuple[float | None, float | None] | None = None  # of possible labels, as far as they show it

    @property
    def verdict(self) -> Balance:
        """How balanced the labels are."""
        if self.distinct == 1:
            return "constant"
        if self.n < 5 * self.few:
            return "too few to tell"
        if self.rare_range <= RARE_RANGE:
            return "balanced" if self.evenness >= BALANCED_EVENNESS else "mildly imbalanced"
        strong = self.evenness < STRONG_EVENNESS or self.top_share > 0.5
        return "strongly imbalanced" if strong else "imbalanced"

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do, the most important first."""
        return sentences("diagnosis", "advice", self, False)

    def spike_advice(self, flags: bool = False) -> str:
        """Return what to do about a value that a large share of the labels have; "" if there is none.

        `flags` names options of the command line, and not parameters of Python.
        """
        return "" if self.spike is None else say("diagnosis", "spike", self, flags)

    @property
    def log_edges(self) -> str:
        """Edges on a log scale, comma-separated; "" if the labels have no such scale, or a short one."""
        if self.low <= 0 or self.high < _WIDE * self.low:
            return ""
        return ",".join(f"{edge:.3g}" for edge in np.geomspace(self.low, self.high, _LOG_BINS + 1))

    def summary(self, flags: bool = False) -> str:
        """Return the findings and the advice as plain text; `flags` as for `spike_advice`."""
        return text("diagnosis", "summary", self, sentences("diagnosis", "advice", self, flags))

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings and lists, ready for JSON."""
        state = {name: value for name, value in vars(self).items() if name not in ("bins", "distinct")}
        return state | {
            "verdict": self.verdict,
            "rule": self.bins.rule,
            "edges": self.bins.edges.tolist(),
            "counts": self.bins.counts.tolist(),
            "spike": None if self.spike is None else list(self.spike),
            "advice": list(self.advice),
        }

    def plot(self, ax: Axes | None = None, *, label: str = "label") -> Axes:
        """Draw the number of labels in each bin, by region, on a log scale; the few-shot range is shaded."""
        from matplotlib.figure import Figure

        from tailwise.report import displays

        ax = ax or Figure(figsize=(7.0, 3.4), layout="constrained").subplots()
        displays.draw_histogram(ax, self.bins, label, self.many, self.few)
        ax.set(ylabel="labels per bin", xlim=(self.bins.edges[0], self.bins.edges[-1]))
        ax.set_ylim(top=6 * int(self.bins.counts.max()))  # room for the legend
        ax.legend(frameon=False, loc="upper right", ncols=3, fontsize="small")
        displays.shade_regions(ax, self.bins, self.many, self.few)
        share = f"{self.range_by_region['few']:.0%} of the range is few-shot"
        ax.set_title(f"{self.verdict}: evenness {self.evenness:.2f}, {share}", fontsize="medium")
        return ax


def diagnose(
    y: ArrayLike | Tensor, *, bins: LabelBins | None = None, many: int = 100, few: int = 20
) -> Diagnosis:
    """Return how imbalanced labels are and what to do about it, which may be nothing. y: (N,)

    The verdict follows from two figures of the `Diagnosis`. Labels are *balanced* if their evenness
    is at least 0.8 and at most 5% of their range is rare; *mildly imbalanced* if they are less even
    but at most 5% is rare; *strongly imbalanced* if more is rare and the evenness is below 1/3 or one
    bin has most of the labels; *imbalanced* otherwise. Fewer than ``5 * few`` labels are too few to tell.

    >>> found = diagnose(np.arange(5000) % 50)
    >>> found.verdict, round(found.evenness, 3)
    ('balanced', 1.0)
    >>> found.advice[0]
    'Do nothing: plain training will do. The labels fill their range evenly...
    >>> diagnose([0] * 900 + [1] * 90 + [2] * 10 + [7]).verdict
    'strongly imbalanced'
    """
    if np.ndim(y) > 1 and np.size(y) != np.shape(y)[0]:
        raise ValueError(f"labels have shape {tuple(np.shape(y))}: diagnose one target (column) at a time")
    labels = checked_labels(y)
    if bins is None:
        bins = LabelBins.from_labels(labels)
    else:
        counts = np.bincount(bins.index(labels), minlength=len(bins)).astype(np.int64)
        bins = LabelBins(bins.edges, counts, bins.rule)
    regions, widths = bins.regions(many, few), _relative_widths(bins)
    values, times = np.unique(labels, return_counts=True)
    skewness, (evenness, rare_range), log_evenness = _skewness(labels), _evenness(bins, few), None
    if skewness > _SKEWED and (values > 0).sum() > 1 and values[0] >= 0:
        logs = LabelBins.from_labels(np.log(labels[labels > 0]), count=len(bins))
        log_evenness = _evenness(logs, few)[0]
    return Diagnosis(
        bins=bins,
        distinct=values.size,
        n=labels.size,
        many=many,
        few=few,
        low=float(values[0]),
        high=float(values[-1]),
        labels_by_region={r: int(bins.counts[regions == r].sum()) for r in REGIONS[1:]},
        bins_by_region={r: int((regions == r).sum()) for r in REGIONS[1:]},
        range_by_region={r: float(widths[regions == r].sum()) for r in REGIONS[1:]},
        evenness=evenness,
        ratio=float(bins.counts.max() / bins.counts[bins.counts > 0].min()),
        rare_range=rare_range,
        empty_range=float(widths[bins.counts == 0].sum()),
        top_share=float(bins.counts.max() / labels.size),
        spike=_spike(values, times, bins),
        skewness=skewness,
        tail_range=_tail_range(labels),
        log_evenness=log_evenness,
        bounds=propose_bounds(labels),
    )


def _evenness(bins: LabelBins, few: int) -> tuple[float, float]:
    """Return effective over actual number of bins, and the share of the range with rare labels."""
    total = int(bins.counts.sum())
    together = min(max(math.ceil(few * len(bins) / total), 1), len(bins))
    starts = np.arange(0, len(bins), together)
    counts = np.add.reduceat(bins.counts, starts)
    widths = np.add.reduceat(_relative_widths(bins), starts)
    shares = counts[counts > 0] / total
    effective = math.exp(-float((shares * np.log(shares)).sum()))
    even = total * widths
    # Three standard errors, so that chance does not make uniform labels rare; 1e-6 for rounded widths.
    rare = (counts < few) & (counts < np.minimum(even / 2, even - 3 * np.sqrt(even)) - 1e-6)
    return min(effective / counts.size, 1.0), float(widths[rare].sum())


def _relative_widths(bins: LabelBins) -> NDArray[np.float64]:
    """Return the width of each bin as a share of the label range. (B,)"""
    return np.asarray(np.diff(bins.edges) / (bins.edges[-1] - bins.edges[0]))


def _spike(
    values: NDArray[np.float64], times: NDArray[np.int64], bins: LabelBins
) -> tuple[float, float] | None:
    """Return the most common value if it has a tenth of the labels and three times any other bin."""
    top = int(times.argmax())
    others = np.delete(bins.counts, int(bins.index(values[top : top + 1])[0]))
    if values.size == 1 or times[top] < _SPIKE_SHARE * times.sum():
        return None
    if others.size == 0 or times[top] < _SPIKE_RATIO * others.max():
        return None
    return float(values[top]), float(times[top] / times.sum())


def _skewness(labels: NDArray[np.float64]) -> float:
    # Scaled to 0..1, where neither sums nor powers overflow.
    low, high = labels.min(), labels.max()
    if not high > low:
        return 0.0
    scaled = (labels - low) / (high - low)
    centered = scaled - scaled.mean()
    return float((centered**3).mean() / (centered**2).mean() ** 1.5)


def _tail_range(labels: NDArray[np.float64]) -> float:
    low, inner, outer, high = np.quantile(labels, [0, 0.005, 0.995, 1])
    return float(1 - (outer - inner) / (high - low)) if high > low else 0.0


def propose_bounds(labels: NDArray[np.float64]) -> tuple[float | None, float | None] | None:
    """Return bounds that the labels suggest, or None. (N,)

    Whole numbers from 0 to 100 that come near both ends suggest percentages, and numbers from 0 to 1 shares.
    The whole numbers from 1 to at most 10 suggest ratings.
    Otherwise labels that are never negative suggest the bound 0 if a symmetric distribution of their mean and
    spread would put more than 1 in 100 below 0.

    >>> propose_bounds(np.array([0.0, 0.2, 0.4, 3.0])), propose_bounds(np.array([101.0, 99.0, 100.0]))
    ((0.0, None), None)
    """
    low, high = float(labels.min()), float(labels.max())
    if low < 0 or low == high:
        return None
    for top, whole in ((100.0, True), (1.0, False)):
        on_grid = not whole or bool((labels % 1 == 0).all())
        if on_grid and low <= 0.05 * top and 0.95 * top <= high <= top:
            return 0.0, top
    if low == 1 and high <= _TOP_RATING and np.array_equal(np.unique(labels), np.arange(1, high + 1)):
        return 1.0, high
    return (0.0, None) if labels.mean() < _BELOW_ZERO * labels.std() else None
