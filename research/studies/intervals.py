"""Intervals at 90%: candidates on the development tables, and the example of the start page.

    TAILWISE_DATA=... python research/studies/intervals.py choose
    python research/studies/intervals.py start --seeds 0 1 2 3 4 5 6 7 8 9

`choose` appends a line for each
candidate and table of `development`: natural splits, at most 1,500 training rows, 40 epochs. `start` does
what docs/start.md shows, with other rows and another model for each seed.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tailwise import TailRegressor
from tailwise.calibration.calibration import Calibration
from tailwise.calibration.interval_scores import constant_interval
from tailwise.data import load_abalone
from tailwise.metrics.scores import winkler
from tailwise.writing import append_line
from tailwise_bench.suites import get_suite

Array = np.ndarray
COVERAGE = 0.9
RESULTS = Path(__file__).parents[1] / "results"


# -- choose ------------------------------------------------------------------------------------------


SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def sides(median: Array, low: Array, high: Array, unit: float) -> tuple[Array, Array, Array]:
    """Return the median, and its distances from the ends, as `ConformalIntervals` has them."""
    below, above = median - low, high - median
    least = np.maximum(0.05 * (below + above), 1e-6 * unit)
    return median, np.maximum(below, least), np.maximum(above, least)


def candidates(fitted: Calibration) -> dict[str, list[Callable[..., tuple[Array, ...]]]]:
    """Return functions from median and quantiles to those that a factor stretches, by candidate."""
    fixed = np.quantile(fitted.labels.quantiles, (0.5, 0.05, 0.95), method="inverted_cdf")

    def blend(share: float) -> Callable[..., tuple[Array, ...]]:
        return lambda *ends: tuple((1 - share) * a + share * b for a, b in zip(ends, fixed, strict=True))

    def around(share: float) -> Callable[..., tuple[Array, ...]]:
        def ends(median: Array, *ends: Array) -> tuple[Array, ...]:
            low, high = blend(share)(median, *ends)[1:]
            return median, np.minimum(low, median), np.maximum(high, median)

        return ends

    held = fitted.possible(fitted.held.prediction)
    middle = [float(np.exp(np.log(np.maximum(d, 1e-12)).mean())) for d in sides(*_three(held), 1.0)[1:]]

    def temper(power: float) -> Callable[..., tuple[Array, ...]]:
        def ends(median: Array, low: Array, high: Array) -> tuple[Array, ...]:
            _, below, above = sides(median, low, high, 1.0)
            a, b = ((d / m) ** power * m for d, m in zip((below, above), middle, strict=True))
            return median, median - a, median + b

        return ends

    return {
        "factor": [blend(0.0)],
        "blend": [blend(share) for share in SHARES],
        "around": [around(share) for share in SHARES],
        "temper": [temper(1 - share) for share in SHARES[:-1]],
    }


def _three(distribution: Any) -> list[Array]:
    return [end.detach().numpy() for end in (distribution.median, *distribution.central)]


def choose(tables: list[str], lines: Path) -> None:
    """Measure each candidate on new rows; its variant is chosen by the held-out interval score."""
    for source in get_suite("development").sources:
        if tables and source.name not in tables:
            continue
        split = source.natural_split(0, max_rows=1500)
        model = TailRegressor(random_state=0, epochs=40).fit(split.x_train, split.y_train)
        fitted = model.model_.targets[0]
        labels, unit = fitted.labels, float(split.y_train.std())
        held, y_held = _three(fitted.possible(fitted.held.prediction)), fitted.held.labels
        new, y = _three(model.predict_distribution(split.x_test)), split.y_test

        def ends(of: Callable[..., tuple[Array, ...]]) -> list[tuple[Array, Array]]:
            median, below, above = sides(*of(*held), unit)  # noqa: B023
            scores = np.abs(y_held - median) / np.where(y_held < median, below, above)  # noqa: B023
            factor = np.sort(scores)[min(math.ceil((len(scores) + 1) * COVERAGE), len(scores)) - 1]
            both = []
            for rows in (held, new):  # noqa: B023
                median, below, above = sides(*of(*rows), unit)  # noqa: B023
                out = (torch.from_numpy(e) for e in (median - factor * below, median + factor * above))
                pair = labels.support.between(*map(labels.limits.clip, out))  # noqa: B023
                both.append((pair[0].numpy(), pair[1].numpy()))
            return both

        def score(low: Array, high: Array, y: Array) -> Array:
            return winkler(*map(torch.from_numpy, (low, high, y)), COVERAGE).numpy() / unit  # noqa: B023

        least, most = constant_interval(split.y_train, COVERAGE)
        results = {"constant": (0, np.full(len(y), least), np.full(len(y), most))}
        for name, variants in candidates(fitted).items():
            all_ends = [ends(variant) for variant in variants]
            on_held = np.stack([score(*pair[0], y_held) for pair in all_ends])
            best = int(on_held.mean(1).argmin())
            gap = on_held - on_held[best]
            near = gap.mean(1) <= gap.std(1) / math.sqrt(gap.shape[1])
            results[name] = (int(near.argmax()), *all_ends[int(near.argmax())][1])
            results[f"{name}, least"] = (best, *all_ends[best][1])
        for name, (variant, low, high) in results.items():
            inside, width = (y >= low) & (y <= high), float((high - low).mean() / unit)
            line = {"coverage": inside.mean(), "width": width, "score": score(low, high, y).mean()}
            line = {k: round(float(v), 4) for k, v in line.items()}
            line = {"table": split.name, "candidate": name, "variant": variant, **line}
            append_line(lines, json.dumps(line).encode())


# -- the start page --------------------------------------------------------------------------------------


def start(seeds: list[int], lines: Path) -> None:
    """Append a line for each seed: coverage of all and of few-shot labels, with and without `rare`."""
    for seed in seeds:
        table = load_abalone().sample(1500, random_state=seed)
        rings = table.pop("Rings")
        train = table.index % 4 != 0
        model = TailRegressor(random_state=seed).fit(table[train], rings[train])
        bins = model.model_.targets[0].bins
        region, y = bins.regions()[bins.index(rings[~train])], rings[~train].to_numpy()
        line: dict[str, Any] = {"seed": seed, "rows": len(y), "few rows": int((region == "few").sum())}
        for name, rare in (("default", None), ("rare=0.9", COVERAGE)):
            low, high = model.predict_interval(table[~train], COVERAGE, rare=rare).T
            inside = (y >= low) & (y <= high)
            line[name] = [round(float(part.mean()), 4) for part in (inside, inside[region == "few"])]
        append_line(lines, json.dumps(line).encode())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("choose", "start"))
    parser.add_argument("tables", nargs="*", help="only these")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--lines", type=Path, default=RESULTS / "intervals.jsonl")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if asked.command == "choose":
        choose(asked.tables, asked.lines)
    else:
        start(asked.seeds, asked.lines)


if __name__ == "__main__":
    main()
