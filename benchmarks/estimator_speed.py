"""Fit and predict time of VIR against vanilla, CatBoost and NGBoost in one run, and how fit grows with rows.

    python benchmarks/estimator_speed.py [--tables] [--growth 1000 10000 100000 1000000]

Times are of one run on one machine and compare only with one another; the ratio to vanilla is what to
read. `--tables` (the default) times the tables of TAILWISE_DATA that exist, or the bundled abalone.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from tailwise import TailRegressor
from tailwise.benchmark.suites import generated, get_suite
from tailwise.data import load_abalone
from tailwise.preprocessing import TablePreprocessor


def tables(cap: int) -> list[tuple[str, pd.DataFrame, np.ndarray]]:
    """The tables at hand, at most `cap` rows of each."""
    found = []
    for source in get_suite("tabular").sources:
        try:
            table = source.load()
        except (OSError, ValueError):
            continue
        table = table[table[source.target].notna()]
        table = table.sample(min(cap, len(table)), random_state=0)
        x = table.drop(columns=[source.target, *source.leaks])
        found.append((source.name, x, table[source.target].to_numpy(float)))
    if not found:
        table = load_abalone()
        found = [("abalone", table.drop(columns="Rings"), table["Rings"].to_numpy(float))]
    return found


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = function()
    return time.perf_counter() - began, result


def peers() -> dict[str, Callable[[], Any]]:
    """Peers that are installed, by name."""
    found: dict[str, Callable[[], Any]] = {}
    try:
        from catboost import CatBoostRegressor

        found["CatBoost"] = lambda: CatBoostRegressor(
            loss_function="RMSEWithUncertainty", iterations=500, verbose=False, allow_writing_files=False
        )
    except ImportError:
        print("catboost is not installed: left out")
    try:
        from ngboost import NGBRegressor

        found["NGBoost"] = lambda: NGBRegressor(n_estimators=200, learning_rate=0.05, verbose=False)
    except ImportError:
        print("ngboost is not installed: left out")
    return found


def compare(cap: int) -> None:
    """One table of times; every contender fits and predicts the same rows."""
    print(f"{'table':12} {'contender':10} {'rows':>6} {'fit s':>8} {'predict s':>10} {'fit / vanilla':>14}")
    for name, x, y in tables(cap):
        matrix = TablePreprocessor().fit(x).transform(x)
        runs: dict[str, tuple[Any, Any]] = {
            "vanilla": (TailRegressor(method="vanilla", random_state=0), x),
            "vir": (TailRegressor(random_state=0), x),
            **{title: (make(), matrix) for title, make in peers().items()},
        }
        base = 0.0
        for title, (model, inputs) in runs.items():
            fit_time, fitted = timed(lambda m=model, i=inputs, y=y: m.fit(i, y))
            predict_time, _ = timed(lambda m=fitted, i=inputs: m.predict(i))
            base = base or fit_time
            print(
                f"{name:12} {title:10} {len(y):6} {fit_time:8.2f} {predict_time:10.3f} "
                f"{fit_time / base:14.2f}",
                flush=True,
            )


def growth(sizes: list[int]) -> None:
    """Fit and predict time of VIR on generated rows x 20 columns, and the memory at its peak."""
    print(f"{'rows':>9} {'fit s':>9} {'us per row':>11} {'epochs':>7} {'predict s':>10} {'peak GB':>8}")
    for rows in sizes:
        table = generated(rows, columns=20, seed=0)
        target = table.columns[-1]
        x, y = table.drop(columns=target), table[target].to_numpy(float)
        fit_time, model = timed(lambda x=x, y=y: TailRegressor(random_state=0).fit(x, y))
        predict_time, _ = timed(lambda x=x, m=model: m.predict(x, return_std=True))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        epochs = len(model.history_.history)
        print(
            f"{rows:9} {fit_time:9.1f} {1e6 * fit_time / rows:11.0f} {epochs:7} {predict_time:10.2f} "
            f"{peak:8.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cap", type=int, default=4000, help="rows of each table")
    parser.add_argument("--growth", type=int, nargs="*", default=[1000, 10_000])
    options = parser.parse_args()
    compare(options.cap)
    growth(options.growth)


if __name__ == "__main__":
    main()
