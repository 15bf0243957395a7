"""Intervals at 90% on natural splits: the default, `rare=0.9`, CatBoost with CV+, and a constant.

    TAILWISE_DATA=... python research/studies/intervals.py run --only baselines --seeds 0 1 2 3 4
    python research/studies/intervals.py write
    TAILWISE_DATA=... python research/studies/intervals.py choose
    python research/studies/intervals.py start --seeds 0 1 2 3 4 5 6 7 8 9

`run` appends a line of JSON for each table, seed and kind of intervals: coverage of all test rows and of the
rarest 15% by training density, mean width and mean interval score (Winkler's), both in standard deviations of
the training labels. At most 4,000 training and 5,000 test rows are used. CV+ (Barber et al., 2021) takes five
folds of CatBoost and symmetric errors; `log` fits log(y + 1 - min) and turns the ends back. Its lines also
have coverage of rare labels and width at other coverages (`curve`), to compare widths at equal coverage of
rare labels. `write` replaces the tables of research/results/intervals.md. `choose` appends a line for each
candidate and table of `development`: natural splits, at most 1,500 training rows, 40 epochs. `start` does
what docs/start.md shows, with other rows and another model for each seed.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from tailwise import TailRegressor
from tailwise.calibration.calibration import Calibration
from tailwise.calibration.interval_scores import constant_interval
from tailwise.data import load_abalone
from tailwise.metrics.scores import winkler
from tailwise.model.base import deal_folds, resolve_base
from tailwise.tables.encode import TablePreprocessor
from tailwise.writing import append_line
from tailwise_bench.suites import get_suite
from tailwise_bench.tables import NaturalSplit
from tailwise_bench.trace import trace_of

Array = np.ndarray
Ends = Callable[[float], tuple[Array, Array]]
"""Lower and upper ends of intervals at a coverage. (N,) each"""
COVERAGE, ROWS, TEST_ROWS, FOLDS = 0.9, 4000, 5000, 5
CURVE = (*np.round(np.arange(0.5, 0.99, 0.02), 2).tolist(), 0.99, 0.995, 0.999)
OURS, RARE, RAW, LOG, CONSTANT = "default", "rare=0.9", "CatBoost CV+", "CatBoost CV+, log", "constant"
RESULTS = Path(__file__).parents[1] / "results"
START, END = "<!-- tables -->", "<!-- end of tables -->"


# -- measure -----------------------------------------------------------------------------------------


def cv_plus(split: NaturalSplit, test: Any, y: Array, seed: int) -> Ends:
    """Return CV+ intervals around CatBoost. y: (n,) labels to fit"""
    encoder = TablePreprocessor.fit(split.x_train)
    x, new = encoder.matrix(split.x_train), encoder.matrix(test)
    make, fold, n = resolve_base("catboost", len(y)), deal_folds(y, seed), len(y)
    assert make is not None
    low, high = [], []
    for k in range(FOLDS):
        model = make(seed + k)
        model.fit(x[fold != k], y[fold != k])
        errors = np.abs(y[fold == k] - model.predict(x[fold == k]))
        centre = model.predict(new)[:, None]
        low.append(centre - errors)
        high.append(centre + errors)
    below, above = np.sort(np.concatenate(low, 1)), np.sort(np.concatenate(high, 1))

    def ends(coverage: float) -> tuple[Array, Array]:
        place = min(math.ceil(coverage * (n + 1)), n)
        return below[:, n - place], above[:, place - 1]

    return ends


def own(split: NaturalSplit, test: Any, seed: int) -> Iterator[tuple[str, Ends]]:
    """Yield our intervals by name: the default, and those that cover rare labels too."""
    model = TailRegressor(random_state=seed).fit(split.x_train, split.y_train)
    for name, rare in ((OURS, None), (RARE, COVERAGE)):
        lower, upper = model.predict_interval(test, COVERAGE, rare=rare).T
        yield name, lambda _, low=lower, high=upper: (low, high)


def baselines(split: NaturalSplit, test: Any, seed: int) -> Iterator[tuple[str, Ends]]:
    """Yield those of baselines by name: CatBoost with CV+ on labels and logarithms, and a constant."""
    y = split.y_train
    least, most = constant_interval(y, COVERAGE)
    yield CONSTANT, lambda _: (np.full(len(test), least), np.full(len(test), most))
    yield RAW, cv_plus(split, test, y, seed)
    shift = 1 - y.min()
    logarithm = cv_plus(split, test, np.log(y + shift), seed)

    def back(coverage: float) -> tuple[Array, Array]:
        low, high = logarithm(coverage)
        return np.exp(low) - shift, np.exp(high) - shift

    yield LOG, back


def run(tables: list[str], seeds: list[int], only: str, lines: Path) -> None:
    """Measure, and append a line for each table, seed and kind of intervals."""
    code = trace_of(None)["code"]
    sources = [s for s in get_suite("estimator").sources if not tables or s.name in tables]
    for seed in seeds:
        for source in sources:
            split = source.natural_split(seed, max_rows=ROWS)
            rows = np.arange(len(split.y_test))
            if len(rows) > TEST_ROWS:
                rows = np.sort(np.random.default_rng(1).choice(rows, TEST_ROWS, replace=False))
            test, y = split.x_test.iloc[rows].reset_index(drop=True), split.y_test[rows]
            rare, unit = split.rare[rows], split.y_train.std()
            for part in (own, baselines) if only == "all" else ({"own": own, "baselines": baselines}[only],):
                for name, ends in part(split, test, seed):
                    low, high = ends(COVERAGE)
                    inside, width = (y >= low) & (y <= high), (high - low).mean() / unit
                    score = winkler(*map(torch.from_numpy, (low, high, y)), COVERAGE).mean().item() / unit
                    figures = {"coverage": inside.mean(), "rare": inside[rare].mean()}
                    figures |= {"width": width, "score": score}
                    line = {k: round(float(v), 4) for k, v in figures.items()}
                    if name in (RAW, LOG):
                        line["curve"] = [_point(*ends(level), y, rare, unit) for level in CURVE]
                    line = {"table": split.name, "seed": seed, "intervals": name, **line, "code": code}
                    append_line(lines, json.dumps(line).encode())


def _point(low: Array, high: Array, y: Array, rare: Array, unit: float) -> list[float]:
    """Return coverage of rare labels, and mean width."""
    inside = (y >= low) & (y <= high)
    return [round(float(inside[rare].mean()), 4), round(float((high - low).mean() / unit), 4)]


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
        for name, rare in (("default", None), (RARE, COVERAGE)):
            low, high = model.predict_interval(table[~train], COVERAGE, rare=rare).T
            inside = (y >= low) & (y <= high)
            line[name] = [round(float(part.mean()), 4) for part in (inside, inside[region == "few"])]
        append_line(lines, json.dumps(line).encode())


# -- write -------------------------------------------------------------------------------------------


def page(lines: Path) -> str:
    """Return the tables and what they say, from the newest line of each table, seed and kind."""
    records = {}
    for text in lines.read_text(encoding="utf-8").splitlines():
        record = json.loads(text)
        records[record["table"], record["seed"], record["intervals"]] = record
    table = pd.DataFrame(records.values())
    seeds = sorted(
        set.intersection(*(set(part["seed"]) for _, part in table.groupby(["table", "intervals"])))
    )
    table = table[table["seed"].isin(seeds)]
    kinds, names = [OURS, RARE, RAW, LOG, CONSTANT], list(dict.fromkeys(table["table"]))
    means = table.pivot_table(["coverage", "rare", "width", "score"], "table", "intervals")
    out = [f"Means over the seeds {', '.join(map(str, seeds))}.", ""]
    out += ["| table | " + " | ".join(kinds) + " |", "|---|" + "--:|" * len(kinds)]
    for name in names:
        figures = [[f"{means.loc[name, (key, kind)]:.{n}f}" for key, n in _DIGITS] for kind in kinds]
        out.append(f"| {name} | " + " | ".join(map(" / ".join, figures)) + " |")
    score = means["score"].loc[names]
    ratios = pd.DataFrame(
        {
            "score: default / best CV+": score[OURS] / score[[RAW, LOG]].min(axis=1),
            "score: default / constant": score[OURS] / score[CONSTANT],
            "width at equal rare coverage: `rare=0.9` / best CV+": {
                name: _equal_width(table[table["table"] == name]) for name in names
            },
        }
    )
    ratios.loc["geometric mean"] = np.exp(np.log(ratios).mean())
    out += ["", f"| table | {' | '.join(ratios)} |", "|---|--:|--:|--:|"]
    out += [f"| {name} | {' | '.join(f'{x:.3f}' for x in row)} |" for name, row in ratios.iterrows()]
    of = table.set_index("intervals")
    ranges = [of.loc[[kind], key].agg(["min", "max"]) for kind, key in ((OURS, "coverage"), (RARE, "rare"))]
    said = [f"{least:.3f} to {most:.3f}" for least, most in ranges]
    out += [
        "",
        f"Over tables and seeds, the default covers {said[0]} of all rows, and `rare=0.9` {said[1]} of",
    ]
    return "\n".join(out) + "\nthe rarest."


_DIGITS = (("coverage", 3), ("rare", 3), ("width", 2), ("score", 2))


def _equal_width(table: pd.DataFrame) -> float:
    """Return the mean over seeds of our width over that of CV+ at the same coverage of rare labels.

    Of its two forms the narrower counts. Between two points of a curve the width is interpolated.
    """
    ratios = []
    for _, part in table.groupby("seed"):
        kinds = part.set_index("intervals")
        ours = kinds.loc[RARE]
        forms = []
        for form in (RAW, LOG):
            rare, width = np.array(kinds.loc[form, "curve"]).T
            forms.append(np.interp(ours["rare"], np.maximum.accumulate(rare), width))
        ratios.append(ours["width"] / min(forms))
    return float(np.mean(ratios))


def write(lines: Path) -> None:
    """Replace the tables of the page."""
    path = RESULTS / "intervals.md"
    before, _, rest = path.read_text(encoding="utf-8").partition(START)
    text = f"{before}{START}\n\n{page(lines)}\n\n{END}{rest.partition(END)[2]}"
    path.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("run", "choose", "start", "write"))
    parser.add_argument("tables", nargs="*", help="only these")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--only", choices=("all", "own", "baselines"), default="all")
    parser.add_argument("--lines", type=Path, default=RESULTS / "intervals.jsonl")
    asked = parser.parse_args()
    if asked.command != "write":
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
    if asked.command == "run":
        run(asked.tables, asked.seeds, asked.only, asked.lines)
    elif asked.command == "choose":
        choose(asked.tables, asked.lines)
    elif asked.command == "start":
        start(asked.seeds, asked.lines)
    else:
        write(asked.lines)


if __name__ == "__main__":
    main()
