"""Intervals at 90% on natural splits: the default, `rare=0.9`, CatBoost with CV+, and a constant.

    TAILWISE_DATA=... python research/studies/intervals.py --suite estimator --rows 4000

A line of JSON for each table and kind of intervals: coverage of all test rows and of the rarest 15% by
training density, mean width and mean interval score (Winkler's), both in standard deviations of the training
labels. At most 5,000 test rows are used. CV+ (Barber et al., 2021) takes five folds of CatBoost and symmetric
errors; `log` fits log(y + 1 - min) and turns the ends back.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tailwise import TailRegressor
from tailwise.calibration.interval_scores import constant_interval
from tailwise.metrics.scores import winkler
from tailwise.model.base import deal_folds, resolve_base
from tailwise.tables.encode import TablePreprocessor
from tailwise_bench.suites import get_suite
from tailwise_bench.tables import NaturalSplit

Array = np.ndarray
COVERAGE, TEST_ROWS, FOLDS = 0.9, 5000, 5


def cv_plus(split: NaturalSplit, test: Any, y: Array, seed: int) -> tuple[Array, Array]:
    """Return the ends of CV+ intervals around CatBoost. y: (n,) labels to fit"""
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
    place = math.ceil(COVERAGE * (n + 1))
    return below[:, n - place], above[:, place - 1]


def intervals(split: NaturalSplit, test: Any, seed: int) -> Iterator[tuple[str, Array, Array]]:
    """Yield the name and the ends of each kind of intervals."""
    y = split.y_train
    model = TailRegressor(random_state=seed).fit(split.x_train, y)
    for name, rare in (("default", None), ("rare=0.9", COVERAGE)):
        yield name, *model.predict_interval(test, COVERAGE, rare=rare).T
    yield "CatBoost CV+", *cv_plus(split, test, y, seed)
    shift = 1 - y.min()
    low, high = cv_plus(split, test, np.log(y + shift), seed)
    yield "CatBoost CV+, log", np.exp(low) - shift, np.exp(high) - shift
    least, most = constant_interval(y, COVERAGE)
    yield "constant", np.full(len(test), least), np.full(len(test), most)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", default="estimator")
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("tables", nargs="*", help="only these")
    asked = parser.parse_args()
    for source in get_suite(asked.suite).sources:
        if asked.tables and source.name not in asked.tables:
            continue
        split = source.natural_split(asked.seed, max_rows=asked.rows)
        rows = np.arange(len(split.y_test))
        if len(rows) > TEST_ROWS:
            rows = np.sort(np.random.default_rng(1).choice(rows, TEST_ROWS, replace=False))
        test, y, rare = split.x_test.iloc[rows].reset_index(drop=True), split.y_test[rows], split.rare[rows]
        unit = split.y_train.std()
        for name, low, high in intervals(split, test, asked.seed):
            inside = (y >= low) & (y <= high)
            score = winkler(*map(torch.from_numpy, (low, high, y)), COVERAGE).mean().item()
            figures = inside.mean(), inside[rare].mean(), (high - low).mean() / unit, score / unit
            keys = ("coverage", "rare", "width", "score")
            line = {"table": split.name, "intervals": name, **dict(zip(keys, figures, strict=True))}
            sys.stdout.write(
                json.dumps({k: v if isinstance(v, str) else round(float(v), 4) for k, v in line.items()})
                + "\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main()
