"""What a label distribution looks like, and whether its imbalance needs doing anything about.

`diagnose` measures how evenly the labels fill their range, names what else stands out (a spike, a
heavy tail, skew, empty stretches) and says in words what to do, which may be nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from tailwise.core.labels import LabelBins, checked_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Verdict = Literal[
    "constant", "too few to tell", "balanced", "mildly imbalanced", "imbalanced", "strongly imbalanced"
]

REGIONS = ("many", "medium", "few")
BALANCED_EVENNESS = 0.8
STRONG_EVENNESS = 1 / 3
RARE_RANGE = 0.05
"""Labels are balanced enough if they are even and rare on no more than this share of their range."""
LARGEST = 1e300
"""Labels of a larger size are refused: sums of a few of them would overflow."""
_SPIKE_SHARE, _SPIKE_RATIO = 0.1, 3.0
_SKEWED = 1.0
_TAIL_RANGE = 2 / 3
_EMPTY_RANGE = 0.1
_FEW_VALUES = 5
_LOG_BINS, _WIDE = 20, 10.0  # over a lesser ratio edges on a log scale are hardly finer, and may round to one
_SMALL = 500
_COLORS = {"many": "#0072B2", "medium": "#56B4E9", "few": "#E69F00"}
_HATCHES = {"many": "", "medium": "///", "few": "xx"}


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What `diagnose` found. Shares are between 0 and 1; regions are many, medium and few.

    `evenness` is exp(entropy) of the bins' shares over their number: 1 for uniform labels, 0.1 if
    they fill the range as poorly as labels that share a tenth of it. For it, and for `rare_range`,
    neighbouring bins are merged until an even spread would put `few` labels into each, so that a
    small data set is not called imbalanced for being small. A bin is rare if it holds fewer than
    `few` labels, less than half its even share, and fewer than chance would leave it.
    """

    verdict: Verdict
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
    ratio: float  # labels in the fullest bin for each one in the emptiest bin that has any
    rare_range: float  # share of the range with fewer than `few` labels and far less than an even share
    empty_range: float  # share of the range in bins without a label
    top_share: float  # share of the labels that the fullest bin holds
    spike: tuple[float, float] | None  # a value that stands out and its share of the labels
    skewness: float
    tail_range: float  # share of the range that the outermost 1% of the labels take
    log_evenness: float | None  # evenness of the labels above 0 on a log scale, if skewed to the right
    advice: tuple[str, ...]

    def summary(self) -> str:
        """Return the findings and the advice as plain text of several lines."""
        lines = [
            f"Verdict: {self.verdict}",
            f"{_counted(self.n, 'label')} from {self.low:.6g} to {self.high:.6g} in "
            f"{_counted(len(self.bins), 'bin')} ({self.bins.rule})",
            "",
            f"{'region':<24}{'bins':>6}{'labels':>9}{'of range':>10}",
        ]
        meaning = {
            "many": f"many (more than {self.many})",
            "medium": "medium",
            "few": f"few (fewer than {self.few})",
        }
        for region in REGIONS:
            lines.append(
                f"{meaning[region]:<24}{self.bins_by_region[region]:>6}"
                f"{self.labels_by_region[region]:>9}{self.range_by_region[region]:>10.0%}"
            )
        lines += [
            "",
            f"Evenness {self.evenness:.2f} (1 is uniform). The fullest bin holds {self.top_share:.0%} of the "
            f"labels, {self.ratio:.0f} for each one in the emptiest bin that has any.",
            f"On {self.rare_range:.0%} of the range labels are rare, far fewer than an even spread would put "
            f"there; on {self.empty_range:.0%} there are none. Skewness {self.skewness:.1f}.",
            "",
        ]
        return "\n".join([*lines, *(f"- {sentence}" for sentence in self.advice)])

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings and lists, ready for JSON."""
        state = {name: value for name, value in vars(self).items() if name != "bins"}
        return state | {
            "rule": self.bins.rule,
            "edges": self.bins.edges.tolist(),
            "counts": self.bins.counts.tolist(),
            "spike": None if self.spike is None else list(self.spike),
            "advice": list(self.advice),
        }

    def plot(self, ax: Axes | None = None, *, label: str = "label") -> Axes:
        """Draw how many labels each bin holds, by region, on a log scale; the few-shot range is shaded."""
        from matplotlib.figure import Figure

        if ax is None:
            ax = Figure(figsize=(7.0, 3.4), layout="constrained").subplots()
        edges, counts = self.bins.edges, self.bins.counts
        regions = self.bins.regions(self.many, self.few)
        for region, color in _COLORS.items():
            chosen = (regions == region) & (counts > 0)
            if not chosen.any():
                continue
            ax.bar(
                self.bins.centers[chosen],
                counts[chosen],
                width=np.diff(edges)[chosen],
                color=color,
                hatch=_HATCHES[region],
                edgecolor="white",
                linewidth=0.5,
                label=f"{region}-shot",
            )
        ax.fill_between(
            np.repeat(edges, 2)[1:-1],
            0,
            1,
            where=np.repeat(regions == "few", 2),
            transform=ax.get_xaxis_transform(),
            color=_COLORS["few"],
            alpha=0.12,
            linewidth=0,
            zorder=0,
        )
        words = label.replace("$", r"\$")  # between two of them matplotlib would read a formula
        ax.set(yscale="log", xlabel=words, ylabel="labels per bin", xlim=(edges[0], edges[-1]))
        ax.set_ylim(0.5, 6 * int(counts.max()))  # room for the legend
        shot = f"{self.range_by_region['few']:.0%} of the range is few-shot"
        ax.set_title(f"{self.verdict}: evenness {self.evenness:.2f}, {shot}", fontsize="medium")
        ax.legend(frameon=False, loc="upper right", ncols=3, fontsize="small")
        return ax


def diagnose(
    y: ArrayLike | Tensor, *, bins: LabelBins | None = None, many: int = 100, few: int = 20
) -> Diagnosis:
    """Say how imbalanced labels are and what to do about it, which may be nothing. y: (N,)

    The verdict follows from two figures of the `Diagnosis`. Labels are *balanced* if their evenness
    is at least 0.8 and at most 5% of their range is rare; *mildly imbalanced* if they are less even
    but at most 5% is rare; *strongly imbalanced* if more is rare and the evenness is below 1/3 or one
    bin holds most labels; *imbalanced* otherwise. Fewer than ``5 * few`` labels are too few to tell.

    >>> found = diagnose(np.arange(5000) % 50)
    >>> found.verdict, round(found.evenness, 3)
    ('balanced', 1.0)
    >>> found.advice[0]
    'Do nothing: plain training will do. The labels fill their range evenly...
    >>> diagnose([0] * 900 + [1] * 90 + [2] * 10 + [7]).verdict
    'strongly imbalanced'
    """
    if np.ndim(y) > 1 and np.size(y) != np.shape(y)[0]:
        raise ValueError(f"labels of shape {tuple(np.shape(y))}: diagnose one target (column) at a time")
    labels = checked_labels(y)
    low, high = float(labels.min()), float(labels.max())
    if max(-low, high) > LARGEST:
        raise ValueError(
            f"labels from {low:.3g} to {high:.3g} are too large to reckon with (beyond {LARGEST:g}): divide "
            "them by a constant first"
        )
    if bins is None:
        bins = LabelBins.from_labels(labels)
    else:
        counts = np.bincount(bins.index(labels), minlength=len(bins)).astype(np.int64)
        bins = LabelBins(bins.edges, counts, bins.rule)
    regions, widths = bins.regions(many, few), _relative_widths(bins)
    occupied = bins.counts[bins.counts > 0]
    evenness, rare_range = _evenness(bins, few)
    values, times = np.unique(labels, return_counts=True)
    found: dict[str, Any] = {
        "bins": bins,
        "n": labels.size,
        "many": many,
        "few": few,
        "low": low,
        "high": high,
        "labels_by_region": {r: int(bins.counts[regions == r].sum()) for r in REGIONS},
        "bins_by_region": {r: int((regions == r).sum()) for r in REGIONS},
        "range_by_region": {r: float(widths[regions == r].sum()) for r in REGIONS},
        "evenness": evenness,
        "ratio": float(occupied.max() / occupied.min()),
        "rare_range": rare_range,
        "empty_range": float(widths[bins.counts == 0].sum()),
        "top_share": float(bins.counts.max() / labels.size),
        "spike": _spike(values, times, bins),
        "skewness": _skewness(labels),
        "tail_range": _tail_range(labels),
        "log_evenness": None,
    }
    if found["skewness"] > _SKEWED and (values > 0).sum() > 1 and values[0] >= 0:
        logs = LabelBins.from_labels(np.log(labels[labels > 0]), count=len(bins))
        found["log_evenness"] = _evenness(logs, few)[0]
    draft = Diagnosis(verdict=_verdict(found, values.size), advice=(), **found)
    return Diagnosis(verdict=draft.verdict, advice=tuple(_advice(draft, values.size)), **found)


def _evenness(bins: LabelBins, few: int) -> tuple[float, float]:
    """Effective over actual number of bins, and the share of the range that holds rare labels."""
    total = int(bins.counts.sum())
    together = min(max(math.ceil(few * len(bins) / total), 1), len(bins))
    starts = np.arange(0, len(bins), together)
    counts = np.add.reduceat(bins.counts, starts)
    widths = np.add.reduceat(_relative_widths(bins), starts)
    shares = counts[counts > 0] / total
    effective = math.exp(-float((shares * np.log(shares)).sum()))
    even = total * widths
    # Three standard errors, lest chance makes uniform labels rare; less a bit, for rounded widths.
    rare = (counts < few) & (counts < np.minimum(even / 2, even - 3 * np.sqrt(even)) - 1e-6)
    return min(effective / counts.size, 1.0), float(widths[rare].sum())


def _relative_widths(bins: LabelBins) -> NDArray[np.float64]:
    """Shares of the label range that the bins take; fractions first, as a range can be 1e300 wide. (B,)"""
    return np.asarray(np.diff(bins.edges) / (bins.edges[-1] - bins.edges[0]))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _spike(
    values: NDArray[np.float64], times: NDArray[np.int64], bins: LabelBins
) -> tuple[float, float] | None:
    """The most common value, if it holds a tenth of the labels and thrice what any other bin does."""
    top = int(times.argmax())
    others = np.delete(bins.counts, int(bins.index(values[top : top + 1])[0]))
    if values.size == 1 or times[top] < _SPIKE_SHARE * times.sum():
        return None
    if others.size == 0 or times[top] < _SPIKE_RATIO * others.max():
        return None
    return float(values[top]), float(times[top] / times.sum())


def _skewness(labels: NDArray[np.float64]) -> float:
    # Within 0 and 1, where neither sums nor powers overflow.
    low, high = labels.min(), labels.max()
    if not high > low:
        return 0.0
    scaled = (labels - low) / (high - low)
    centered = scaled - scaled.mean()
    return float((centered**3).mean() / (centered**2).mean() ** 1.5)


def _tail_range(labels: NDArray[np.float64]) -> float:
    low, inner, outer, high = np.quantile(labels, [0, 0.005, 0.995, 1])
    return float(1 - (outer - inner) / (high - low)) if high > low else 0.0


def _verdict(found: dict[str, Any], distinct: int) -> Verdict:
    if distinct == 1:
        return "constant"
    if found["n"] < 5 * found["few"]:
        return "too few to tell"
    if found["rare_range"] <= RARE_RANGE:
        return "balanced" if found["evenness"] >= BALANCED_EVENNESS else "mildly imbalanced"
    strong = found["evenness"] < STRONG_EVENNESS or found["top_share"] > 0.5
    return "strongly imbalanced" if strong else "imbalanced"


def _advice(d: Diagnosis, distinct: int) -> list[str]:
    """What to do, the most important first."""
    if d.verdict == "constant":
        return [f"All labels are {d.low:g}: there is nothing to learn. Was the right column read?"]
    if d.verdict == "too few to tell":
        return [
            f"Train plainly: {d.n} labels are too few to tell imbalance from chance ({5 * d.few} would do), "
            "and too few to reweight by. More labels help more than any method."
        ]
    said, edges = [_main_advice(d)], _log_edges(d)
    if d.spike is not None:
        said.append(spike_advice(d, *d.spike))
    elif d.top_share > 0.5 and distinct > len(d.bins):
        finer = edges or f"more than {len(d.bins)} bins, --bins COUNT or TailRegressor(bins=COUNT)"
        said.append(
            f"One bin holds {d.top_share:.0%} of the labels although they differ: take {finer}, or what is "
            "common there stays one lump."
        )
        edges = edges and "the edges above"
    if d.tail_range > _TAIL_RANGE:
        said.append(
            f"The outermost 1% of the labels take up {d.tail_range:.0%} of the range: look at them for "
            "errors first. If they are real, transform the labels or "
            f"{f'take {edges}' if edges else 'set bin edges by hand'}."
        )
    said += _scale_advice(d)
    if d.empty_range > _EMPTY_RANGE:
        said.append(
            f"No label at all lies in {d.empty_range:.0%} of the range: there every method guesses from its "
            "neighbours, and nothing can be tested."
        )
    if d.n < _SMALL and d.rare_range > RARE_RANGE:
        said.append(
            f"{d.n} labels are few for a deep net: cross-validate against plain training and boosted trees "
            "before trusting any reweighting."
        )
    if d.n < d.few * len(d.bins):
        wider = max(d.n // (2 * d.few), 2)
        said.append(
            f"{d.n} labels in {len(d.bins)} bins are {d.n / len(d.bins):.1f} each: most bins are few-shot "
            f"for lack of data. Wider ones, --bins {wider} or TailRegressor(bins={wider}), tell more."
        )
    if distinct <= _FEW_VALUES:
        said.append(f"Only {distinct} values occur: a classifier of ordered classes may suit them better.")
    return said


def _log_edges(d: Diagnosis) -> str:
    """Edges on a log scale as `tailwise fit --bins` takes them; nothing where the labels have none."""
    if d.low <= 0 or d.high < _WIDE * d.low:
        return ""
    edges = ",".join(f"{edge:.3g}" for edge in np.geomspace(d.low, d.high, _LOG_BINS + 1))
    return f"edges on a log scale, --bins {edges} or the same as a list, TailRegressor(bins=[...])"


def _main_advice(d: Diagnosis) -> str:
    if d.verdict == "balanced":
        return (
            "Do nothing: plain training will do. The labels fill their range evenly (evenness "
            f"{d.evenness:.2f}, at least {BALANCED_EVENNESS:g}) and are rare on {d.rare_range:.0%} of it (at "
            f"most {RARE_RANGE:.0%}). Reweighting would add variance and gain little."
        )
    if d.verdict == "mildly imbalanced":
        return (
            "Start with plain training: the labels are uneven, but hardly any part of their range is short "
            f"of them (rare on {d.rare_range:.0%}). If rare labels matter, compare method 'sqinv' or 'vir' "
            "by balanced MAE."
        )
    short = d.labels_by_region["few"] / d.n
    wide = " Expect wide intervals there." if d.verdict == "strongly imbalanced" else ""
    return (
        f"Plain training is likely to serve rare labels badly: {d.range_by_region['few']:.0%} of the range "
        f"has fewer than {d.few} labels to a bin, {short:.1%} of all labels.{wide} "
        "Use method 'vir' or 'lds', validate on balanced data, and judge by balanced MAE and by region: the "
        "plain average is decided by common labels and may get worse."
    )


def spike_advice(d: Diagnosis, value: float, share: float) -> str:
    """What to do about labels a share of which has one value."""
    text = f"{share:.0%} of the labels are exactly {value:g}"
    if value in (d.low, d.high) and value != 0:
        end = "smallest" if value == d.low else "largest"
        return (
            f"{text}, the {end} label: if they were capped there, a model of censored data is the right "
            "one; otherwise predict first whether a label is that value."
        )
    return (
        f"{text}. Predict first whether a label is {value:g}, and then the others by a model trained on "
        "them alone: no smoothing across neighbouring labels makes sense there."
    )


def _scale_advice(d: Diagnosis) -> list[str]:
    if d.log_evenness is not None and d.log_evenness > d.evenness + 0.1:
        function = "np.log" if d.low > 0 else "np.log1p"
        return [
            f"Skewed to the right (skewness {d.skewness:.1f}). On a log scale the evenness is "
            f"{d.log_evenness:.2f}: where relative errors are what matters, train on {function}(y)."
        ]
    if d.tail_range > _TAIL_RANGE and d.low < 0 < d.high:
        return ["Labels of both signs with heavy tails: np.arcsinh(y / scale) keeps the sign and tames them."]
    if d.skewness < -_SKEWED:
        return [f"Skewed to the left (skewness {d.skewness:.1f}): the rare labels are the small ones."]
    return []
