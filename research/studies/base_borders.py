"""How many borders of each column the trees of a base need.

    python research/studies/base_borders.py --seeds 6 --jobs 10

Rule, written before the runs: the smallest `border_count` of 254 (CatBoost's default), 128, 64 and 32 is
taken with which MAE, RMSE, rare MAE and the width of CV+ intervals at 90% rise by at most 0.5% each, coverage
falls by at most one point, and no table's MAE rises by more than 2%, or more than the line "254 again" does
on its worst table: the same trees with other random numbers in CatBoost. Figures are geometric means over the
tables of the suite `development` (natural splits, at most 2,000 training rows) of the mean of five CatBoost
models of 1,000 trees on test rows, divided by that of 254 borders; a table's is the mean over its seeds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
from catboost import CatBoostRegressor

from tailwise.model.base import FOLDS, TREES, CrossFit, deal_folds
from tailwise.model.transforms import candidates
from tailwise.tables.encode import TablePreprocessor
from tailwise_bench.pivot import as_markdown
from tailwise_bench.suites import get_suite

LINES = Path(__file__).parents[1] / "results" / "base-borders.jsonl"
BORDERS = {"254": 254, "254 again": 254, "128": 128, "64": 64, "32": 32}
RATIOS = ("mae", "rmse", "rare_mae", "width")


def measured(name: str, seed: int) -> dict[str, Any]:
    """Return the figures of one table by number of borders."""
    table = next(source for source in get_suite("development").sources if source.name == name)
    split = table.natural_split(seed, max_rows=2000)
    encoder = TablePreprocessor.fit(split.x_train)
    matrix, new = (encoder.matrix(x) for x in (split.x_train, split.x_test))
    y, fold = split.y_train, deal_folds(split.y_train, seed)
    transform = candidates("auto", y)[-1]  # logarithms where the labels are skewed
    line: dict[str, Any] = {"data": name, "seed": seed, "rows": len(y), "columns": matrix.shape[1]}
    for title, borders in BORDERS.items():

        def make(number: int, borders: int = borders, other: int = 1000 * (title == "254 again")) -> Any:
            return CatBoostRegressor(
                iterations=TREES, random_seed=number + other, thread_count=1, allow_const_label=True,
                allow_writing_files=False, verbose=False, border_count=borders,
            )  # fmt: skip

        start = time.process_time()
        base, _ = CrossFit(make, matrix, y, np.ones(len(y)), fold, seed, transform).whole()
        seconds = time.process_time() - start
        errors = np.abs(base.predict(new) - split.y_test)
        low, high = base.intervals(new, [0.9])[0]
        line[title] = {
            "mae": float(errors.mean()),
            "rmse": float(np.sqrt((errors**2).mean())),
            "rare_mae": float(errors[split.rare].mean()),
            "width": float((high - low).mean()),
            "covered": float(((low <= split.y_test) & (split.y_test <= high)).mean()),
            "seconds": seconds / FOLDS,
        }
    return line


def report(lines: list[dict[str, Any]]) -> str:
    """Return the page's table."""
    rows = []
    for title in list(BORDERS)[1:]:
        logs = {k: [np.log(line[title][k] / line["254"][k]) for line in lines] for k in (*RATIOS, "seconds")}
        covered = np.mean([line[title]["covered"] - line["254"]["covered"] for line in lines])
        names = sorted({line["data"] for line in lines})
        of_tables = [
            np.exp(np.mean([v for v, line in zip(logs["mae"], lines, strict=True) if line["data"] == name]))
            for name in names
        ]
        means = [f"{np.exp(np.mean(logs[key])):.4f}" for key in RATIOS]
        worst = int(np.argmax(of_tables))
        cost = f"{np.exp(np.mean(logs['seconds'])):.2f}"
        rows.append([title, *means, f"{covered:+.4f}", f"{of_tables[worst]:.3f} ({names[worst]})", cost])
    head = ["borders", "MAE", "RMSE", "rare MAE", "width", "covered", "worst MAE", "processor time"]
    return as_markdown(f"Over 254 borders ({len(lines)} fits)", head, rows)


def main() -> None:
    """Measure what is missing; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tables", nargs="*", help="only these")
    parser.add_argument("--lines", type=Path, default=LINES)
    arguments = parser.parse_args()
    lines = [json.loads(text) for text in arguments.lines.open()] if arguments.lines.is_file() else []
    done = {(line["data"], line["seed"]) for line in lines}
    names = arguments.tables or [source.name for source in get_suite("development").sources]
    left = [(n, seed) for seed in range(arguments.seeds) for n in names if (n, seed) not in done]
    with ProcessPoolExecutor(arguments.jobs) as pool, arguments.lines.open("a") as file:
        for future in as_completed([pool.submit(measured, *pair) for pair in left]):
            lines.append(future.result())
            file.write(json.dumps(lines[-1]) + "\n")
            file.flush()
            sys.stderr.write(f"{lines[-1]['data']} seed {lines[-1]['seed']}\n")
    sys.stdout.write(report(sorted(lines, key=lambda line: (line["data"], line["seed"]))) + "\n")


if __name__ == "__main__":
    main()
