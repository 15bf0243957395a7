"""Which trees and which networks make the default fit: candidates, the margin of logarithms, folds of many rows.

    python research/studies/base_trees.py candidates --jobs 16
    python research/studies/base_trees.py margin
    python research/studies/base_trees.py folds

research/results/base-cost.md has the rules, which were written before the runs. Each part adds lines to LINES.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from catboost import CatBoostRegressor

from tailwise import TailRegressor
from tailwise.metrics.scores import winkler
from tailwise.model import base, settings
from tailwise.networks import backbones
from tailwise.tables.encode import TablePreprocessor
from tailwise_bench.suites import get_suite

LINES = Path(__file__).parents[1] / "results" / "base-trees.jsonl"
SMALL = {"width": 128, "epochs": 40, "patience": 40}
CANDIDATES: dict[str, dict[str, Any]] = {
    "today": {"trees": 1000},
    "wait 50": {"trees": 1000, "wait": 50},
    "500 trees": {"trees": 500},
    "300 trees": {"trees": 300},
    "8 bins": {"trees": 1000, "bins": 8},
    "wait 50, 8 bins": {"trees": 1000, "wait": 50, "bins": 8},
    "300, 8 bins": {"trees": 300, "bins": 8},
    "300, patience 5": {"trees": 300, "stop": 5},
    "3 folds, 8 bins": {"trees": 1000, "bins": 8, "folds": 3},
    "wait 50, 3 folds, 8 bins": {"trees": 1000, "wait": 50, "bins": 8, "folds": 3},
    "1000, pool": {"trees": 1000, "pool": True},
    "300, pool": {"trees": 300, "pool": True},
    "300, pool of 128": {"trees": 300, "pool": True, **SMALL},
    "300, pool of 64 x 2": {"trees": 300, "pool": True, **SMALL, "width": 64, "blocks": 2},
    "300, realmlp of 128": {"trees": 300, "backbone": "realmlp", **SMALL},
    "300, realmlp of 128, pool": {"trees": 300, "backbone": "realmlp", "pool": True, **SMALL},
}
"""`wait`: CatBoost stops after so many trees without a gain on the held-out fold. `bins`: of the piecewise linear
encoding. `stop`: patience of the networks. A pool has the network `realmlp` of a width, blocks and most epochs."""


def split_of(name: str, rows: int, seed: int) -> Any:
    source = next(source for source in get_suite("development").sources if source.name == name)
    return source.natural_split(seed, max_rows=rows)


def candidate(name: str, rows: int, seed: int, title: str) -> dict[str, Any]:
    """Return the figures of one candidate on one table."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    split = split_of(name, rows, seed)
    options = dict(CANDIDATES[title])
    trees, width, blocks = options.pop("trees"), options.pop("width", 256), options.pop("blocks", 3)
    epochs, patience, stop = (
        options.pop("epochs", 100),
        options.pop("patience", 30),
        options.pop("stop", None),
    )
    bins, wait, edges = options.pop("bins", 16), options.pop("wait", None), backbones.quantile_edges
    options |= {} if stop is None else {"patience": stop}

    class Sized(backbones.RealMLP):
        def __init__(self, in_dim: int, *, rows: Any = None) -> None:
            super().__init__(in_dim, rows=rows, width=width, blocks=blocks)

    def config(rows: int) -> dict[str, Any]:
        table = settings.table_config(rows)
        schedule = {"lr": 3e-3, "schedule": "cosine", "patience": patience, "monitor": "crps"}
        return table | schedule | {"epochs": min(table["epochs"], epochs)}

    def stopped(self: Any, k: int, model: Any) -> Any:
        train, y = self.fold != k, (self.latent - self.location) / self.scale
        held_out = self.matrix[~train], y[~train]
        model.fit(
            self.matrix[train], y[train], eval_set=held_out, early_stopping_rounds=wait, use_best_model=True
        )
        return base.predicted(model, held_out[0]), base.spread(model, held_out[0])

    line: dict[str, Any] = {
        "data": name,
        "most": rows,
        "seed": seed,
        "rows": len(split.y_train),
        "title": title,
    }
    with (
        patch.object(base, "TREES", trees),
        patch.object(base.CrossFit, "_fit", base.CrossFit._fit if wait is None else stopped),
        patch("tailwise.model.split.FOLDS", options.get("folds", 5)),
        patch.dict(backbones.BACKBONES, {"realmlp": Sized}),
        patch.object(settings, "realmlp_config", config),
        patch.object(backbones, "quantile_edges", lambda rows, count=16: edges(rows, bins)),
    ):
        if title == "today":
            matrix, start = TablePreprocessor.fit(split.x_train).matrix(split.x_train), time.process_time()
            plain = CatBoostRegressor(
                iterations=1000, thread_count=1, verbose=False, allow_writing_files=False
            )
            plain.fit(matrix, split.y_train)
            line["catboost"] = time.process_time() - start
        start = time.process_time()
        model = TailRegressor(random_state=seed, device="cpu", **options).fit(split.x_train, split.y_train)
        line["seconds"] = time.process_time() - start
        (predicted,) = model.predictions(split.x_test)
    labels, (low, high) = torch.from_numpy(split.y_test), predicted.interval(0.9)
    errors = np.abs(predicted.distribution.point.numpy() - split.y_test)
    crps = predicted.distribution.crps(labels).numpy()
    return line | {
        "mae": float(errors.mean()),
        "rmse": float(np.sqrt((errors**2).mean())),
        "crps": float(crps.mean()),
        "rare_mae": float(errors[split.rare].mean()),
        "rare_crps": float(crps[split.rare].mean()),
        "score": float(winkler(low, high, labels, 0.9).mean()),
        "covered": float(((low <= labels) & (labels <= high)).double().mean()),
    }


def stopping(seed: int) -> Any:
    """Return CatBoost as it is now: it stops 50 trees after its best one on the rows that it is given."""
    return base.BASES["catboost"](seed).set_params(early_stopping_rounds=50)


class Stopped(base.CrossFit):
    """A cross-fit whose trees stop by the fold that is held out."""

    def _fit(self, k: int, model: Any) -> Any:
        train, y = self.fold != k, (self.latent - self.location) / self.scale
        model.fit(self.matrix[train], y[train], eval_set=(self.matrix[~train], y[~train]))
        return base.predicted(model, self.matrix[~train]), base.spread(model, self.matrix[~train])


def cross_fit(split: Any, seed: int, folds: int, transform: Any) -> tuple[Any, Any]:
    encoder, y = TablePreprocessor.fit(split.x_train), split.y_train
    fold = base.deal_folds(y, seed, folds)
    return Stopped(
        stopping, encoder.matrix(split.x_train), y, np.ones(len(y)), fold, seed, transform
    ), encoder


def margin(name: str, seed: int) -> dict[str, Any] | None:
    """Return the out-of-fold CRPS of stopped trees on logarithms over that on labels, on two of five folds."""
    split = split_of(name, 2000, seed)
    choices = settings.candidates("auto", split.y_train)
    if len(choices) == 1:
        return None
    plain, log = (cross_fit(split, seed, 5, t)[0].fit(range(base.JUDGES)).crps for t in choices)
    return {"data": name, "seed": seed, "base": log / plain}


def folds(name: str, seed: int) -> dict[str, Any] | None:
    """Return errors of stopped trees of five, three and two folds on all rows of a large table."""
    split = split_of(name, 10**6, seed)
    if len(split.y_train) <= 20_000:
        return None
    line: dict[str, Any] = {"data": name, "seed": seed, "rows": len(split.y_train)}
    for count in (5, 3, 2):
        start = time.process_time()
        fit, encoder = cross_fit(split, seed, count, settings.candidates("auto", split.y_train)[-1])
        errors = np.abs(fit.whole()[0].predict(encoder.matrix(split.x_test)) - split.y_test)
        rare = errors[split.rare].mean()
        figures = {"mae": errors.mean(), "rmse": np.sqrt((errors**2).mean()), "rare_mae": rare}
        line[str(count)] = {key: float(value) for key, value in figures.items()}
        line[str(count)]["seconds"] = time.process_time() - start
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("part", choices=["candidates", "margin", "folds"])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tables", nargs="*", help="only these")
    parser.add_argument("--titles", nargs="*", default=list(CANDIDATES), help="only these candidates")
    options = parser.parse_args()
    names = options.tables or [source.name for source in get_suite("development").sources]
    if options.part != "candidates":
        jobs = [(globals()[options.part], name, seed) for name in names for seed in range(3)]
    else:
        sizes = [(2000, 0), (2000, 1), (8000, 0)]
        jobs = [(candidate, n, r, s, title) for n in names for r, s in sizes for title in options.titles]
    with ProcessPoolExecutor(options.jobs) as pool, LINES.open("a") as file:
        for done in as_completed([pool.submit(*job) for job in jobs]):
            if (line := done.result()) is not None:
                file.write(json.dumps({"part": options.part} | line) + "\n")
                file.flush()


if __name__ == "__main__":
    main()
