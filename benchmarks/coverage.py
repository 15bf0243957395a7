"""Coverage of 90% intervals by region: TailRegressor, CatBoost and NGBoost on seven tables.

    TAILWISE_DATA=... python benchmarks/coverage.py --seeds 5 --write

Every table is split at random: three quarters for training (at most 4,000 rows), the rest for testing.
`same calibration`: the peers get the same rows, the same held-out part and the same scaling and conformal
step as TailRegressor. `own`: intervals of the predicted distribution itself; TailRegressor's is scaled on the
held-out part. Regions are defined by the number of training rows in the true label's bin. The peers need the
extra `peers`; a peer that is not installed is left out.

This is not a test on unseen tables. The conformal score and its weighting were chosen earlier among 26
variants on models of six of these tables, and the network on the validation parts of all seven
([backbones.md](backbones.md)). VIR's defaults come from a search on these tables and a later one on other
tables ([defaults.md](defaults.md)). Splits of different seeds share rows. The peers with the same calibration
benefit from the choice of intervals as much as TailRegressor does.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from tailwise import TailRegressor
from tailwise.benchmark import Source, get_suite
from tailwise.benchmark.pages.origin import describe_origin
from tailwise.benchmark.run.trace import ESTIMATOR, machine, trace_of, unchanged
from tailwise.core.distributions import Normal
from tailwise.core.labels import LabelBins
from tailwise.data import label_holdout, random_split
from tailwise.data.tables.preprocessing import TablePreprocessor
from tailwise.uncertainty.calibrator import fit_calibrator

REGIONS = ("all", "many", "medium", "few")
DOCS = Path(__file__).parents[1] / "docs" / "results"


def coverage_by_region(
    lower: np.ndarray, upper: np.ndarray, y: np.ndarray, bins: LabelBins
) -> dict[str, float]:
    """Return coverage and width, in label standard deviations, by region."""
    region = bins.regions()[bins.index(y)]
    out: dict[str, float] = {}
    for name in REGIONS:
        mask = np.ones(len(y), bool) if name == "all" else region == name
        if mask.any():
            out[f"{name}/coverage"] = float(((y >= lower) & (y <= upper))[mask].mean())
            out[f"{name}/width"] = float((upper - lower)[mask].mean() / bins.scale)
            out[f"{name}/n"] = int(mask.sum())
    return out


def catboost(x: np.ndarray, y: np.ndarray, seed: int) -> Any:
    from catboost import CatBoostRegressor

    model = CatBoostRegressor(
        loss_function="RMSEWithUncertainty", iterations=500, random_seed=seed, thread_count=1, verbose=False,
        allow_writing_files=False,
    ).fit(x, y)  # fmt: skip
    return lambda rows: Normal(*torch.as_tensor(np.array(model.predict(rows))).double().unbind(1))


def ngboost(x: np.ndarray, y: np.ndarray, seed: int) -> Any:
    from ngboost import NGBRegressor

    model = NGBRegressor(n_estimators=200, learning_rate=0.05, random_state=seed, verbose=False).fit(x, y)

    def predict(rows: np.ndarray) -> Normal:
        found = model.pred_dist(rows)
        return Normal(torch.as_tensor(np.array(found.loc)), torch.as_tensor(np.array(found.scale) ** 2))

    return predict


def fit_all(job: tuple[str, int], cap: int) -> list[dict[str, Any]]:
    """Fit everything on one table with one seed."""
    torch.set_num_threads(1)
    traces = {True: trace_of(ESTIMATOR), False: trace_of(None)}
    name, seed = job
    source = next(s for s in get_suite("tabular").sources if s.name == name)
    assert isinstance(source, Source)
    inputs, labels = source.inputs_and_labels()
    split = random_split(len(labels), valid=0.0, test=0.25, seed=seed)
    rng = np.random.default_rng(seed)
    rows = split.train if len(split.train) <= cap else np.sort(rng.choice(split.train, cap, replace=False))
    test = split.test if len(split.test) <= 20_000 else np.sort(rng.choice(split.test, 20_000, replace=False))
    x, y, x_test, y_test = inputs.iloc[rows], labels[rows], inputs.iloc[test], labels[test]
    held = label_holdout(y, share=0.2, seed=seed)
    kept = np.setdiff1d(np.arange(len(y)), held)
    order = np.random.default_rng(seed).permutation(len(held))
    select, confirm = order[: len(held) // 2], order[len(held) // 2 :]
    out = []

    def record(method: str, ends: tuple[Any, Any], seconds: float, bins: LabelBins) -> None:
        scores = coverage_by_region(np.asarray(ends[0]), np.asarray(ends[1]), y_test, bins)
        line = {"data": name, "seed": seed, "method": method, "seconds": round(seconds, 2), **scores}
        trace = traces[method.startswith(ESTIMATOR)]
        out.append({**line, "machine": machine(), "trace": trace})

    began = time.process_time()
    model = TailRegressor(random_state=seed).fit(x.iloc[kept], y[kept], eval_set=(x.iloc[held], y[held]))
    seconds = time.process_time() - began
    bins = model.bins_
    assert isinstance(bins, LabelBins)
    record("TailRegressor", model.predict_interval(x_test).T, seconds, bins)
    raw = model.predict_distribution(x_test)
    record("TailRegressor, own", raw.interval(0.9), seconds, bins)
    encoder = TablePreprocessor().fit(x.iloc[kept])
    e_train, e_held, e_test = (encoder.transform(part) for part in (x.iloc[kept], x.iloc[held], x_test))
    for title, peer in (("CatBoost", catboost), ("NGBoost", ngboost)):
        try:
            began = time.process_time()
            predict = peer(e_train, y[kept], seed)
            seconds = time.process_time() - began
        except ImportError:
            continue
        future = predict(e_test)
        record(f"{title}, own", future.interval(0.9), seconds, bins)
        calibrator = fit_calibrator(predict(e_held), y[held], bins, select, confirm)
        ends = calibrator.interval(calibrator.calibrated(future), 0.9)
        record(f"{title}, same calibration", ends, seconds, bins)
    return out


def table_of(results: pd.DataFrame) -> str:
    """Return a Markdown table: mean and standard deviation of coverage over seeds, and widths."""
    lines = [
        "| table | method | all | many | medium | few | width all | width few | rows few | fit s |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    everything = results.assign(data="**mean of the tables**")
    for data, own in [*results.groupby("data", sort=False), *everything.groupby("data")]:
        for method, group in own.groupby("method", sort=False):
            cells = [
                f"{group[f'{r}/coverage'].mean():.3f} ± {group[f'{r}/coverage'].std():.3f}"
                if group[f"{r}/coverage"].notna().any()
                else "-"
                for r in REGIONS
            ]
            widths = [f"{group[f'{r}/width'].mean():.2f}" for r in ("all", "few")]
            rows, seconds = f"{group['few/n'].mean():.0f}", f"{group['seconds'].mean():.1f}"
            lines.append(f"| {data} | {method} | {' | '.join([*cells, *widths, rows, seconds])} |")
    return "\n".join(lines).replace("nan", "-")


def page(lines: list[dict[str, Any]]) -> str:
    """Return the page of these results lines."""
    seeds = len({line["seed"] for line in lines})
    about = (__doc__ or "").strip().splitlines()
    origin = describe_origin([{**line, "title": line["method"]} for line in lines], ESTIMATOR)
    body = "\n".join(about[4:])
    return (
        f"# {about[0].rstrip('.')}\n\nWritten by `python benchmarks/coverage.py --seeds {seeds} "
        f"--write`; do not edit. Mean ± standard deviation over {seeds} seeds. Widths are in "
        "standard deviations of the training labels; `fit s` is processor seconds.\n\n"
        f"{body}\n\n{' '.join(origin)}\n\n{table_of(pd.DataFrame(lines))}\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cap", type=int, default=4000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--data", default="", help="comma-separated names; all by default")
    parser.add_argument(
        "--results", type=Path, default=DOCS / "coverage.jsonl", help="continued if it exists"
    )
    parser.add_argument("--write", action="store_true", help="write docs/results/coverage.md")
    options = parser.parse_args()
    names = options.data.split(",") if options.data else [s.name for s in get_suite("tabular").sources]
    done = []
    if options.results.exists():
        done = unchanged(json.loads(line) for line in options.results.read_text().splitlines())
    have = {(row["data"], row["seed"]) for row in done}
    jobs = [(n, s) for s in range(options.seeds) for n in names if (n, s) not in have]
    options.results.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(options.workers) as pool, options.results.open("a") as out:
        for rows in pool.map(partial(fit_all, cap=options.cap), jobs):
            done += rows
            out.writelines(json.dumps(row) + "\n" for row in rows)
            out.flush()
            covered = {r["method"]: round(r["all/coverage"], 3) for r in rows}
            print(rows[0]["data"], rows[0]["seed"], covered, flush=True)
    text = page(done)
    print(text)
    if options.write:
        (DOCS / "coverage.md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
