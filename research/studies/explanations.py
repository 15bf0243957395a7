"""Time and additivity of Shapley values on a table with text and dates, beside CatBoost's own.

    python research/studies/explanations.py
    python research/studies/explanations.py --rows 300 --explained 5 --trees 50 --epochs 2 --seeds 0

Shapley values of `tailwise.explanations.shapley` are those of the whole estimator (trees, networks, dial)
by column of the raw table. CatBoost's (``get_feature_importance(type="ShapValues")``) are those of its trees
alone by encoded feature, and a text or a date has many of these. Both explain the same test rows, in the same
process and with one thread. The largest gap between a prediction and the sum of base value and attributions,
and the largest standard error, are shares of the standard deviation of the labels.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pandas as pd
import torch
from catboost import CatBoostRegressor, Pool

from tailwise import TailRegressor
from tailwise.explanations import shapley
from tailwise.model import base as bases

THINGS = ("oak chair", "steel lamp", "pine desk", "brass bed", "glass vase", "silk rug")


def prices(rows: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Skewed prices of things that are described by numbers, a category, a date and text."""
    rng = np.random.default_rng(seed)
    thing = rng.integers(0, len(THINGS), rows)
    day = rng.integers(0, 1500, rows)
    table = pd.DataFrame(
        {
            "age": rng.gamma(2.0, 20.0, rows).round(),
            "weight": rng.lognormal(1.0, 0.7, rows),
            "state": rng.choice(["new", "good", "worn"], rows, p=[0.2, 0.5, 0.3]),
            "sold": pd.Timestamp("2019-01-01") + pd.to_timedelta(day, "D"),
            "text": [f"{THINGS[k]}, lot {rng.integers(9999)}" for k in thing],
            "shelf": rng.integers(0, 40, rows),
        }
    )
    log = (
        3 + 0.25 * thing + 0.6 * (table["state"] == "new") + 0.3 * day / 1500 + 0.4 * np.log(table["weight"])
    )
    return table, np.exp(log + 0.2 * rng.normal(size=rows)).to_numpy()


def measure(rows: int, explained: int, background: int, epochs: int | None, seed: int) -> dict[str, float]:
    """Fit both models and explain the same rows."""
    X, y = prices(rows + explained, seed)
    train, test = X[:rows], X[rows:]
    model = TailRegressor(epochs=epochs or "auto", random_state=seed).fit(train, y[:rows])
    spread = float(y.std())

    began = time.perf_counter()
    ours = shapley(model, test, train, background_rows=background, random_state=seed)
    seconds = time.perf_counter() - began

    encoded, new = model.encoded(train), model.encoded(test)
    trees = CatBoostRegressor(
        iterations=bases.TREES, verbose=False, random_seed=seed, thread_count=1, allow_writing_files=False
    )
    trees.fit(encoded, y[:rows])
    began = time.perf_counter()
    theirs = trees.get_feature_importance(Pool(new), type="ShapValues", thread_count=1)
    their_seconds = time.perf_counter() - began
    return {
        "seconds per row": seconds / explained,
        "CatBoost's seconds per row": their_seconds / explained,
        "times CatBoost's seconds": seconds / their_seconds,
        "largest gap": ours.gap / spread,
        "CatBoost's largest gap": float(np.abs(theirs.sum(axis=1) - trees.predict(new)).max()) / spread,
        "largest standard error": float(ours.error.to_numpy().max()) / spread,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rows", type=int, default=1000, help="maximum number of training rows")
    parser.add_argument("--explained", type=int, default=50, help="test rows that are explained")
    parser.add_argument("--background", type=int, default=100, help="background rows")
    parser.add_argument("--trees", type=int, default=bases.TREES, help="trees of the base and of CatBoost")
    parser.add_argument("--epochs", type=int, default=None, help="epochs; chosen by the data by default")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    bases.TREES = chosen.trees
    found = pd.DataFrame(
        [
            measure(chosen.rows, chosen.explained, chosen.background, chosen.epochs, seed)
            for seed in chosen.seeds
        ]
    )
    columns = prices(2, 0)[0].shape[1]
    print(f"{chosen.rows} training rows, {columns} columns, {chosen.background} background rows")
    print(f"{chosen.explained} explained rows, {chosen.trees} trees, seeds {chosen.seeds}")
    for name, values in found.items():
        print(f"{name:27} {values.mean():.3g} (from {values.min():.3g} to {values.max():.3g})")


if __name__ == "__main__":
    main()
