"""How many trees a base needs, and how many folds decide about logarithms.

    python research/studies/base_cost.py --seeds 2

Rules, written before the runs; figures are geometric means over the tables of the suite `development`
(natural splits, at most 2,000 training rows) of the mean of the five CatBoost models on test rows, divided by
that of 1,000 trees and of both transforms fitted on all folds.

1. Trees: each model stops when its held-out fold has not gained for 20, 50, 100 or 200 trees, and keeps the
   trees up to its best. The shortest wait is taken with which MAE, RMSE, rare MAE and the width of CV+
   intervals at 90% rise by at most 0.5% each, coverage falls by at most one point, and no table's MAE rises
   by more than 2%.
2. Folds: logarithms are judged by the out-of-fold CRPS of the first 1, 2 or 3 folds instead of all five, with
   the same margin, at 1,000 trees. The smallest number is taken with which MAE and CRPS rise by at most 0.5%
   each, and the choice is that of five folds on at least nine of ten tables whose labels are skewed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from catboost import CatBoostRegressor
from numpy.typing import NDArray

from tailwise.distributions.transform import AnyTransform
from tailwise.model.base import FOLDS, MARGIN, TREES, deal_folds, out_of_fold_crps
from tailwise.model.transforms import candidates
from tailwise.tables.encode import TablePreprocessor
from tailwise_bench.pivot import as_markdown
from tailwise_bench.suites import get_suite

Array = NDArray[np.float64]
LINES = Path(__file__).parents[1] / "results" / "base-cost.jsonl"
WAITS = (20, 50, 100, 200, TREES)
COVERAGE = 0.9


def stopped(errors: Array, wait: int) -> tuple[int, int]:
    """Return the trees kept and the trees grown with a patience. errors: (trees,)"""
    if wait >= len(errors):
        return len(errors), len(errors)
    best = 0
    for tree in range(len(errors)):
        if errors[tree] < errors[best]:
            best = tree
        elif tree - best >= wait:
            return best + 1, tree + 1
    return best + 1, len(errors)


def cross_fitted(transform: AnyTransform, matrix: Array, y: Array, fold: Any, seed: int) -> list[Any]:
    """Return the model of each fold with the errors of its held-out rows after each tree."""
    latent = transform.latents(y)
    standardized = (latent - latent.mean()) / (latent.std() or 1.0)
    models = []
    for k in range(FOLDS):
        inside, rest = fold != k, fold == k
        model = CatBoostRegressor(
            iterations=TREES, random_seed=seed + k, thread_count=1, allow_const_label=True,
            allow_writing_files=False, verbose=False, use_best_model=False,
        )  # fmt: skip
        model.fit(matrix[inside], standardized[inside], eval_set=(matrix[rest], standardized[rest]))
        models.append((model, np.array(model.evals_result_["validation"]["RMSE"])))
    return models


def measured(name: str, table: Any, seed: int) -> dict[str, Any]:
    """Return the figures of a table by transform and wait, and the CRPS of logarithms by folds."""
    split = table.natural_split(seed, max_rows=2000)
    encoder = TablePreprocessor.fit(split.x_train)
    matrix, new = (encoder.matrix(x) for x in (split.x_train, split.x_test))
    y, fold = split.y_train, deal_folds(split.y_train, seed)
    line: dict[str, Any] = {"data": name, "seed": seed, "rows": len(y), "columns": matrix.shape[1]}
    for transform in candidates("auto", y):
        latent = transform.latents(y)
        center, scale = latent.mean(), latent.std() or 1.0
        fitted = cross_fitted(transform, matrix, y, fold, seed)
        kind = "none" if transform.is_identity else "log"
        for wait in WAITS:
            trees = [stopped(errors, wait) for _, errors in fitted]
            kept = [k for k, _ in trees]
            each = center + scale * np.stack(
                [m.predict(new, ntree_end=k) for (m, _), k in zip(fitted, kept, strict=True)]
            )
            held = np.empty(len(y))
            for k, (model, _) in enumerate(fitted):
                held[fold == k] = center + scale * model.predict(matrix[fold == k], ntree_end=kept[k])
            point = transform.labels(each.mean(0))
            errors = np.abs(point - split.y_test)
            around = np.abs(latent - held)
            ends = [
                np.concatenate([each[k][:, None] + s * around[fold == k] for k in range(FOLDS)], 1)
                for s in (-1, 1)
            ]
            low = transform.labels(np.quantile(ends[0], 1 - COVERAGE, axis=1, method="lower"))
            high = transform.labels(np.quantile(ends[1], COVERAGE, axis=1, method="higher"))
            line[f"{kind} {wait}"] = {
                "mae": float(errors.mean()),
                "rmse": float(np.sqrt((errors**2).mean())),
                "rare_mae": float(errors[split.rare].mean()),
                "width": float((high - low).mean()),
                "covered": float(((low <= split.y_test) & (split.y_test <= high)).mean()),
                "trees": float(np.mean([grown for _, grown in trees])),
            }
            if wait in (50, TREES):
                line[f"{kind} {wait}"]["crps by folds"] = [
                    out_of_fold_crps(transform, transform.labels(held[fold < n]), y[fold < n])
                    for n in range(1, FOLDS + 1)
                ]
                line[f"{kind} {wait}"]["crps"] = out_of_fold_crps(transform, point, split.y_test)
    return line


def geometric(values: list[float]) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def takes_log(line: dict[str, Any], wait: int, folds: int) -> bool:
    """Whether logarithms are taken by the CRPS of some folds."""
    if f"log {wait}" not in line:
        return False
    none, log = (line[f"{kind} {wait}"]["crps by folds"][folds - 1] for kind in ("none", "log"))
    return bool(log < (1 - MARGIN) * none)


def report(lines: list[dict[str, Any]]) -> str:
    """Return the page's tables."""
    rows = []
    for wait in WAITS[:-1]:
        pairs = [
            (line[f"{kind} {wait}"], line[f"{kind} {TREES}"])
            for line in lines
            for kind in ["log" if takes_log(line, TREES, FOLDS) else "none"]
        ]
        cells = [
            f"{geometric([a[key] / b[key] for a, b in pairs]):.4f}"
            for key in ("mae", "rmse", "rare_mae", "width")
        ]
        cells.append(f"{np.mean([a['covered'] - b['covered'] for a, b in pairs]):+.4f}")
        cells.append(f"{max(a['mae'] / b['mae'] for a, b in pairs):.3f}")
        cells.append(f"{np.mean([a['trees'] for a, _ in pairs]):.0f}")
        rows.append([str(wait), *cells])
    head = ["wait", "MAE", "RMSE", "rare MAE", "width", "covered", "worst MAE", "trees grown"]
    text = as_markdown("Stopping, over 1,000 trees", head, rows)
    skewed = [line for line in lines if f"log {TREES}" in line]
    rows = []
    for wait in (50, TREES):
        for folds in range(1, FOLDS):
            same = np.mean([takes_log(s, wait, folds) == takes_log(s, TREES, FOLDS) for s in skewed])
            ratio = []
            for key in ("mae", "crps"):
                chosen = [
                    line[f"{'log' if takes_log(line, wait, folds) else 'none'} {TREES}"][key]
                    / line[f"{'log' if takes_log(line, TREES, FOLDS) else 'none'} {TREES}"][key]
                    for line in skewed
                ]
                ratio.append(f"{geometric(chosen):.4f}")
            rows.append([str(wait), str(folds), f"{same:.0%}", *ratio])
    return text + "\n\n" + as_markdown(
        f"Folds that judge logarithms ({len(skewed)} fits with skewed labels)",
        ["wait", "folds", "as all folds at 1,000 trees", "MAE", "CRPS"], rows,
    )  # fmt: skip


def main() -> None:
    """Measure what is missing; print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--lines", type=Path, default=LINES)
    arguments = parser.parse_args()
    lines = [json.loads(text) for text in arguments.lines.open()] if arguments.lines.is_file() else []
    done = {(line["data"], line["seed"]) for line in lines}
    for seed in range(arguments.seeds):
        for table in get_suite("development").sources:
            if (table.name, seed) in done:
                continue
            start = time.process_time()
            lines.append(measured(table.name, table, seed))
            with arguments.lines.open("a") as file:
                file.write(json.dumps(lines[-1]) + "\n")
            sys.stderr.write(f"{table.name} seed {seed}: {time.process_time() - start:.0f} s\n")
    sys.stdout.write(report(lines) + "\n")


if __name__ == "__main__":
    main()
