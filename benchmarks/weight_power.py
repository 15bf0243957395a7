"""Errors of VIR by the power of the importance weights: the table of docs/metrics.md.

VIR is trained on abalone with each power and tested on a random quarter of the rows. Mean and standard
deviation are over seeds, which affect the split and the network.

    python benchmarks/weight_power.py [--seeds 5] [--epochs 20]
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from sklearn.model_selection import train_test_split

from tailwise import TailRegressor
from tailwise.data import load_abalone
from tailwise.metrics import evaluate

POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)
FIGURES = ("mse", "many/mae", "medium/mae", "few/mae", "balanced_mae")


def figures(power: float, seed: int, epochs: int) -> list[float]:
    """Return the test errors of one model."""
    table = load_abalone()
    rings = table.pop("Rings")
    x, x_test, y, y_test = train_test_split(table, rings, random_state=seed)
    model = TailRegressor(
        method="vir",
        method_options={"weights.power": power},
        base=None,
        folds=1,
        emphasis=0,
        monitor="balanced_mae",
        epochs=epochs,
        random_state=seed,
    ).fit(x, y)
    found = evaluate(
        model.predict_distribution(x_test), y_test, model.bins_, FIGURES, many=model.many, few=model.few
    )
    return [found[name] for name in FIGURES]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| `power` | MSE | many/MAE | medium/MAE | few/MAE | balanced MAE |\n|---|---|---|---|---|---|")
    for power in POWERS:
        runs = np.array([figures(power, seed, options.epochs) for seed in range(options.seeds)])
        cells = (f"{m:.2f} ± {s:.2f}" for m, s in zip(runs.mean(0), runs.std(0, ddof=1), strict=True))
        print(f"| {power:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
