"""Coverage of 90% intervals where the truth is known: by region and overall, over 200 draws.

    python research/studies/coverage_simulation.py --write

Labels are lognormal around a level that depends on x, so they have a long upper tail. In the second table
they are the same less 1, but at least 0: 30% of them are 0, and `bounds` says that none is smaller.
Predictions are stand-ins for five networks, not trained ones: what the intervals promise does not depend on
how predictions were made. Each stand-in pulls the true mean 15% towards the mean of all labels, as networks
do with rare labels. It adds an error of 0.4 true standard deviations, half of whose variance all five share,
and misjudges the true standard deviation by a factor with a log standard deviation of 0.2. In the second
table, where it is almost 0 for rows whose label is almost surely 0, it includes the pull. Every row
calibrates: it is predicted by the one stand-in whose fold it is in. New rows are predicted by all five.
Scaling and intervals are the code that TailRegressor uses.

`split conformal`: the same stand-ins, one symmetric normalised quantile of the held-out errors for all rows,
around the mean of the five. `constant`: one interval between two quantiles of the training labels. Regions
are those of the true label: more than 100, 20 to 100, or fewer than 20 training labels in its bin. `rarest`
are the 15% of the new labels with the lowest density of training labels. Wilson's intervals are over all new
rows of all draws. Rows of one draw share a calibration set, so the standard deviation of the coverage over
draws is given too. Widths are in standard deviations of all labels. `below 0` is the share of intervals with
an end below 0.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import stats

from tailwise.calibration.calibration import CalibrationRecipe, Labels, Raw, calibrate
from tailwise.calibration.interval_scores import constant_interval, wilson_interval
from tailwise.distributions.members import Normal, stack
from tailwise.distributions.truncation import Bounds
from tailwise.labels.bins import LabelBins
from tailwise.labels.prior import LabelDensity, rarest
from tailwise.labels.support import LabelSupport

Array = np.ndarray
PAGE = Path(__file__).parents[1] / "results" / "coverage_simulation.md"
SIZES = (100, 300, 1000, 10_000)
NETWORKS, COVERAGE, NEW_ROWS = 5, 0.9, 1000
PARTS = ("all", "many", "medium", "few", "rarest")
LEVEL, SPREAD, NOISE, PULL = 0.5, 0.8, 0.5, 0.15
TOTAL = math.hypot(SPREAD, NOISE)


def moments(level: Array | float, noise: float, floor: bool) -> tuple[Array, Array]:
    """Return mean and variance of labels whose logarithm is normal; with a floor, of those less 1, or 0."""
    first, second = np.exp(level + noise**2 / 2), np.exp(2 * np.asarray(level) + 2 * noise**2)
    if not floor:
        return first, second - first**2
    above, once, twice = (stats.norm.cdf(np.asarray(level) / noise + k * noise) for k in range(3))
    mean = first * once - above
    return mean, second * twice - 2 * first * once + above - mean**2


def draw(n: int, rng: np.random.Generator, floor: bool) -> tuple[Array, list[Normal]]:
    """Return labels and what each of the five stand-ins predicts for them. (n,) each"""
    level = LEVEL + SPREAD * rng.normal(size=n)
    y = np.exp(level + NOISE * rng.normal(size=n))
    y = np.maximum(y - 1, 0) if floor else y
    mean, variance = moments(level, NOISE, floor)
    std, overall = np.sqrt(variance), float(moments(LEVEL, TOTAL, floor)[0])
    pull = PULL * (overall - mean)
    judged = np.hypot(std, pull) if floor else std
    shared = rng.normal(size=n)
    found = []
    for _ in range(NETWORKS):
        error = 0.4 * std * (shared + rng.normal(size=n)) / math.sqrt(2)
        spread = judged * np.exp(0.2 * rng.normal(size=n))
        found.append(Normal(torch.from_numpy(mean + pull + error), torch.from_numpy(spread**2)))
    return y, found


def held_out(predictions: list[Normal]) -> Normal:
    """Return, for each row, the prediction of the network of its fold. (n,)"""
    rows = torch.arange(len(predictions[0]))
    parameters = zip(*(prediction.parameters for prediction in predictions), strict=True)
    return Normal(*(torch.stack(values)[rows % NETWORKS, rows] for values in parameters))


def ours(held: Normal, y: Array, bins: LabelBins, bounds: Bounds, new: list[Normal]) -> tuple[Array, Array]:
    """Calibrate on held-out rows and return the intervals of TailRegressor for new rows."""
    labels = Labels(bins, bounds, LabelSupport.from_labels(y), quantiles=np.sort(y))
    rows = np.arange(len(y))
    calibration = calibrate(held, y, np.zeros(len(y), np.int64), labels, CalibrationRecipe(), rows, rows)
    lower, upper = calibration(Raw.of(stack(new), np.zeros(len(new[0]), np.int64))).interval(COVERAGE)
    return lower.numpy(), upper.numpy()


def split_conformal(held: Normal, y: Array, new: list[Normal]) -> tuple[Array, Array]:
    """Return split-conformal intervals with normalised absolute scores, the same for all rows."""
    scores = np.sort(np.abs(y - held.mean.numpy()) / held.std.numpy())
    quantile = scores[min(math.ceil((len(y) + 1) * COVERAGE), len(y)) - 1]
    mean = np.mean([d.mean.numpy() for d in new], axis=0)
    spread = np.mean([d.std.numpy() for d in new], axis=0)
    return mean - quantile * spread, mean + quantile * spread


def one_draw(n: int, seed: int, floor: bool) -> list[dict[str, float | str]]:
    """Calibrate on n rows and return hits, rows and widths of new rows, by part and method."""
    rng = np.random.default_rng([n, seed])
    y, predictions = draw(n, rng, floor)
    y_new, new = draw(NEW_ROWS, rng, floor)
    bins, held = LabelBins.from_labels(y), held_out(predictions)
    low, high = constant_interval(y, COVERAGE)
    methods = {
        "TailRegressor's rule": ours(held, y, bins, Bounds(0.0, math.inf) if floor else Bounds(), new),
        "split conformal": split_conformal(held, y, new),
        "constant": (np.full(NEW_ROWS, low), np.full(NEW_ROWS, high)),
    }
    region = bins.regions()[bins.index(y_new)]
    masks = {part: region == part for part in PARTS}
    masks |= {"all": np.ones(NEW_ROWS, bool), "rarest": rarest(y_new, LabelDensity.from_bins(bins))}
    unit = math.sqrt(float(moments(LEVEL, TOTAL, floor)[1]))
    return [
        {
            "n": n, "part": part, "method": method, "rows": int(rows.sum()),
            "hits": int(((y_new >= lower) & (y_new <= upper))[rows].sum()),
            "width": float(((upper - lower) / unit)[rows].mean()),
            "outside": int((np.minimum(lower, upper) < 0)[rows].sum()),
        }
        for part, rows in masks.items() if rows.any()
        for method, (lower, upper) in methods.items()
    ]  # fmt: skip


def simulate(sizes: Sequence[int], draws: int, floor: bool) -> pd.DataFrame:
    """Return the scores of all draws by size and part."""
    scores = [row for n in sizes for seed in range(draws) for row in one_draw(n, seed, floor)]
    results = pd.DataFrame(scores).astype({"part": pd.CategoricalDtype(list(PARTS))})
    return results.sort_values(["n", "part"], kind="stable")


def table_of(results: pd.DataFrame) -> str:
    """Return a Markdown table: coverage with Wilson's interval, its spread over draws, and widths."""
    lines = [
        "| rows | labels | method | coverage | Wilson 95% | std over draws | width | below 0 |",
        "|--:|---|---|--:|--:|--:|--:|--:|",
    ]
    for (n, part, method), group in results.groupby(["n", "part", "method"], sort=False, observed=True):
        hits, rows = int(group["hits"].sum()), int(group["rows"].sum())
        low, high = wilson_interval(hits, rows)
        spread = (group["hits"] / group["rows"]).std()
        lines.append(
            f"| {n:,} | {part} | {method} | {hits / rows:.3f} | {low:.3f} to {high:.3f} | {spread:.3f} | "
            f"{group['width'].mean():.2f} | {group['outside'].sum() / rows:.1%} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Simulate both tables; print or write them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--write", action="store_true", help="write research/results/coverage_simulation.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    plain, bounded = (simulate(options.sizes, options.draws, floor) for floor in (False, True))
    own = bounded[(bounded["method"] == "TailRegressor's rule") & (bounded["part"] == "all")]
    leaving = f"{own['outside'].sum():,} of {own['rows'].sum():,}"
    text = (
        f"## Labels without bounds\n\n{table_of(plain)}\n\n## Labels of at least 0, 30% of them 0\n\n"
        f"{leaving} intervals of TailRegressor's rule leave the bounds.\n\n{table_of(bounded)}"
    )
    print(text)
    if options.write:
        title, _, _, _, *body = (__doc__ or "").strip().splitlines()
        about = "Written by `python research/studies/coverage_simulation.py --write` with the seeds 0 to "
        about += f"{options.draws - 1}; do not edit."
        lines = ["# " + title.rstrip("."), "", about, "", *body, "", text, ""]
        PAGE.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
