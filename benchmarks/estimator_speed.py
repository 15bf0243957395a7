"""Fit and predict times of VIR, vanilla, CatBoost and NGBoost in one run, and fit time by number of rows.

    TAILWISE_DATA=... python benchmarks/estimator_speed.py --growth 1000 10000 100000 1000000 --write

Times are processor seconds of all threads together, which other work on the machine does not lengthen. They
come from one run on one machine, so compare them only with one another. The last column is the fit time
divided by vanilla's. Networks stop early by the validation error; trees have a fixed number of rounds.
Without TAILWISE_DATA only the bundled abalone is timed.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from script_options import script_parser
from tailwise import TailRegressor
from tailwise.benchmark import Source, get_suite
from tailwise.benchmark.data.suites import generated
from tailwise.data import load_abalone
from tailwise.data.tables.preprocessing import TablePreprocessor

PAGE = Path(__file__).parents[1] / "docs" / "results" / "estimator_speed.md"


def tables(cap: int) -> list[tuple[str, pd.DataFrame, np.ndarray]]:
    """Return the tables that are there, with at most `cap` rows of each."""
    found = []
    for source in get_suite("tabular").sources:
        assert isinstance(source, Source)
        try:
            x, y = source.inputs_and_labels()
        except (OSError, ValueError):
            continue
        rows = np.random.default_rng(0).permutation(len(y))[:cap]
        found.append((source.name, x.iloc[rows], y[rows]))
    if not found:
        table = load_abalone().sample(cap, random_state=0)
        found = [("abalone", table.drop(columns="Rings"), table["Rings"].to_numpy(float))]
    return found


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return the processor seconds of a call and its result."""
    began = time.process_time()
    result = function()
    return time.process_time() - began, result


def peers() -> dict[str, Callable[[], Any]]:
    """Return the peers that are installed, by name."""
    found: dict[str, Callable[[], Any]] = {}
    try:
        from catboost import CatBoostRegressor

        found["CatBoost"] = lambda: CatBoostRegressor(
            loss_function="RMSEWithUncertainty", iterations=500, verbose=False, allow_writing_files=False
        )
    except ImportError:
        print("catboost is not installed: left out", file=sys.stderr)
    try:
        from ngboost import NGBRegressor

        found["NGBoost"] = lambda: NGBRegressor(n_estimators=200, learning_rate=0.05, verbose=False)
    except ImportError:
        print("ngboost is not installed: left out", file=sys.stderr)
    return found


def compare(cap: int) -> Iterator[str]:
    """Yield a table of times; every contender fits and predicts the same rows."""
    # The first fit imports modules, which must not count.
    TailRegressor(epochs=1).fit(np.arange(50.0).reshape(-1, 1), np.arange(50.0))
    yield "| table | contender | rows | fit s | predict s | fit / vanilla |"
    yield "|---|---|--:|--:|--:|--:|"
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
            times = f"{fit_time:.2f} | {predict_time:.3f} | {fit_time / base:.2f}"
            yield f"| {name} | {title} | {len(y):,} | {times} |"


def growth(sizes: list[int]) -> Iterator[str]:
    """Yield a table of VIR's times and peak memory on generated rows of 20 numbers and a category."""
    yield "| rows | fit s | microseconds a row | epochs | predict s | peak GB so far |"
    yield "|--:|--:|--:|--:|--:|--:|"
    for rows in sizes:
        table = generated(rows, columns=20, seed=0)
        target = table.columns[-1]
        x, y = table.drop(columns=target), table[target].to_numpy(float)
        fit_time, model = timed(lambda x=x, y=y: TailRegressor(random_state=0).fit(x, y))
        predict_time, _ = timed(lambda x=x, m=model: m.predict(x, return_std=True))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        epochs = max(len(history.history) for history in model.histories_)
        yield (
            f"| {rows:,} | {fit_time:.1f} | {1e6 * fit_time / rows:.0f} | {epochs} | {predict_time:.2f} "
            f"| {peak:.2f} |"
        )


def print_all(lines: Iterable[str]) -> str:
    """Print lines as they come and return them as one text."""
    kept = []
    for line in lines:
        print(line, flush=True)
        kept.append(line)
    return "\n".join(kept)


def main() -> None:
    parser = script_parser(__doc__, write="write docs/results/estimator_speed.md")
    parser.add_argument("--cap", type=int, default=4000, help="rows of each table")
    parser.add_argument("--growth", type=int, nargs="*", default=[1000, 10_000])
    options = parser.parse_args()
    compared, grown = print_all(compare(options.cap)), print_all(growth(options.growth))
    if options.write:
        title, *about = (__doc__ or "").strip().splitlines()
        body = "\n".join(about[3:]).strip()
        sizes = " ".join(map(str, options.growth))
        PAGE.write_text(
            f"# {title.rstrip('.')}\n\nWritten by `TAILWISE_DATA=... python benchmarks/estimator_speed.py "
            f"--cap {options.cap} --growth {sizes} --write`; do not edit.\n\n{body}\n\n"
            f"## Tables\n\n{compared}\n\n## Growth\n\n{grown}\n",
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
