"""Which options of CatBoost make the trees of a base cheaper and lose nothing, and whether three folds do.

    python research/studies/base_options.py --seeds 2 --rows 2000 10000 --jobs 4
    python research/studies/base_options.py --seeds 2 --rows 2000 --jobs 4 --folds

Rule, written before the runs: of `OPTIONS`, the one of the least processor time is taken with which MAE,
RMSE, rare MAE and the width of CV+ intervals at 90% rise by at most 0.5% each, coverage falls by at most
one point, and no table's MAE rises by more than 2%, or more than the line "again" does on its worst
table: the same trees with other random numbers. ("32 borders" was left out: on two tables it was worse
by 5% and 8%.) Figures are geometric means over the tables of the suite `development` (natural splits) of
the mean of five CatBoost models on test rows, divided by that of the default; a table's is the mean over
its seeds. What at most 2,000 training rows say holds for fits of up to 5,000 rows, what at most 10,000
say for larger ones; tables that have no more than 2,500 are left out there.

The same rule, with CRPS in place of RMSE, decides with ``--folds`` between five and three folds of a
`TailRegressor`, for base and networks alike.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from tailwise import TailRegressor
from tailwise.model.base import AUTO, BASES, FOLDS, CrossFit, deal_folds
from tailwise.model.transforms import candidates
from tailwise.tables.encode import TablePreprocessor
from tailwise_bench.pivot import as_markdown
from tailwise_bench.suites import get_suite

LINES = Path(__file__).parents[1] / "results" / "base-options.jsonl"
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "again": {"random_seed": 1000},
    "128 borders": {"border_count": 128},
    "64 borders": {"border_count": 64},
    "half the columns": {"rsm": 0.5},
    "half the columns, 128 borders": {"rsm": 0.5, "border_count": 128},
    "500 trees, 128 borders": {"iterations": 500, "border_count": 128},
}
"""The defaults are 1,000 trees, each of which may split by all columns at 254 borders of each."""
FOLD_COUNTS = {"default": 5, "again": 5, "three folds": 3}
NAMES = {"mae": "MAE", "rmse": "RMSE", "crps": "CRPS", "rare_mae": "rare MAE", "width": "width"}


def measured(name: str, seed: int, rows: int) -> dict[str, Any] | None:
    """Return the figures of one table by options, None if it has too few rows."""
    table = next(source for source in get_suite("development").sources if source.name == name)
    split = table.natural_split(seed, max_rows=rows)
    if rows > 2000 and len(split.y_train) <= 2500:
        return None
    encoder = TablePreprocessor.fit(split.x_train)
    matrix, new = (encoder.matrix(x) for x in (split.x_train, split.x_test))
    y, fold = split.y_train, deal_folds(split.y_train, seed)
    transform = candidates("auto", y)[-1]  # logarithms where the labels are skewed
    line: dict[str, Any] = {
        "data": name,
        "seed": seed,
        "most": rows,
        "rows": len(y),
        "columns": matrix.shape[1],
    }
    for title, options in OPTIONS.items():

        def make(number: int, options: dict[str, Any] = options) -> Any:
            model = BASES[AUTO](number)
            seed = {"random_seed": number + options.get("random_seed", 0)}
            return model.set_params(**options | seed, thread_count=1)

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


def measured_folds(name: str, seed: int, rows: int) -> dict[str, Any]:
    """Return the figures of one table by number of folds."""
    table = next(source for source in get_suite("development").sources if source.name == name)
    split = table.natural_split(seed, max_rows=rows)
    line: dict[str, Any] = {"data": name, "seed": seed, "most": rows, "rows": len(split.y_train)}
    for title, folds in FOLD_COUNTS.items():
        start = time.process_time()
        with patch("tailwise.model.split.FOLDS", folds):
            model = TailRegressor(random_state=seed + 1000 * (title == "again"), device="cpu")
            model.fit(split.x_train, split.y_train)
        seconds = time.process_time() - start
        predicted = model.predict_distribution(split.x_test)
        low, high = model.predict_interval(split.x_test, coverage=0.9).T
        errors = np.abs(model.predict(split.x_test) - split.y_test)
        line[title] = {
            "mae": float(errors.mean()),
            "crps": float(np.mean(predicted.crps(torch.tensor(split.y_test)).numpy())),
            "rare_mae": float(errors[split.rare].mean()),
            "width": float((high - low).mean()),
            "covered": float(((low <= split.y_test) & (split.y_test <= high)).mean()),
            "seconds": seconds,
        }
    return line


def report(lines: list[dict[str, Any]]) -> str:
    """Return the page's table."""
    rows, names = [], sorted({line["data"] for line in lines})
    ratios = [name for name in NAMES if name in lines[0]["default"]]
    for title in [title for title in lines[0] if isinstance(lines[0][title], dict)][1:]:
        logs = {
            k: [np.log(line[title][k] / line["default"][k]) for line in lines] for k in (*ratios, "seconds")
        }
        covered = np.mean([line[title]["covered"] - line["default"]["covered"] for line in lines])
        of_tables = [
            np.exp(np.mean([v for v, line in zip(logs["mae"], lines, strict=True) if line["data"] == name]))
            for name in names
        ]
        means = [f"{np.exp(np.mean(logs[key])):.4f}" for key in ratios]
        worst = int(np.argmax(of_tables))
        cost = f"{np.exp(np.mean(logs['seconds'])):.2f}"
        rows.append([title, *means, f"{covered:+.4f}", f"{of_tables[worst]:.3f} ({names[worst]})", cost])
    head = ["options", *(NAMES[key] for key in ratios), "covered", "worst MAE", "processor time"]
    title = f"Over the default, at most {lines[0]['most']:,} rows ({len(lines)} fits)"
    return as_markdown(title, head, rows)


def main() -> None:
    """Measure what is missing; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, nargs="+", default=[2000, 10_000], help="most training rows")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tables", nargs="*", help="only these")
    parser.add_argument("--lines", type=Path, default=LINES)
    parser.add_argument("--folds", action="store_true", help="compare numbers of folds")
    arguments = parser.parse_args()
    study = measured_folds if arguments.folds else measured
    lines = [json.loads(text) for text in arguments.lines.open()] if arguments.lines.is_file() else []
    done = {(line["data"], line["seed"], line["most"]) for line in lines}
    names = arguments.tables or [source.name for source in get_suite("development").sources]
    every = [(n, s, rows) for s in range(arguments.seeds) for rows in arguments.rows for n in names]
    with ProcessPoolExecutor(arguments.jobs) as pool, arguments.lines.open("a") as file:
        for future in as_completed([pool.submit(study, *task) for task in every if task not in done]):
            line = future.result()
            if line is not None:
                lines.append(line)
                file.write(json.dumps(line) + "\n")
                file.flush()
                sys.stderr.write(f"{line['data']} seed {line['seed']} of {line['rows']} rows\n")
    for rows in arguments.rows:
        of_size = [line for line in lines if line["most"] == rows]
        if of_size:
            sys.stdout.write(report(of_size) + "\n")


if __name__ == "__main__":
    main()
