"""Time by the number of rows: TailRegressor and CatBoost on generated tables, in one run.

    python research/studies/rows.py --threads 16 --write

Tables have 15 numbers, a category and a label with a long right tail. Both models get the same rows and the
same number of threads on the CPU. CatBoost predicts a Gaussian (RMSEWithUncertainty, 1,000 trees), as in
`tailwise-bench estimator`. Each run is a process of its own, after a small fit that does not count. Then it
predicts as many new rows as it was fitted on: means, distributions and 90% intervals. Seconds are those of
the clock; processor seconds are those of all threads together. Finished runs are kept in
research/results/rows.jsonl and not repeated. Times of two machines do not compare: name another file with
`--results` to measure yours.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from tailwise.report.results import Record, append_record, machine, read_records
from tailwise_bench.estimators import fit_catboost, fit_tail
from tailwise_bench.pages import origin
from tailwise_bench.pivot import as_markdown, number
from tailwise_bench.statistics import Results
from tailwise_bench.tables import generated
from tailwise_bench.trace import ESTIMATOR, trace_of, unchanged

DOCS = Path(__file__).parents[1] / "results"
SIZES = (10_000, 100_000, 300_000, 1_000_000)
COLUMNS = 15
WARM_ROWS = 60
TITLES = {"catboost": "CatBoost", "tail": "TailRegressor"}
LINEAR = 1.1
"""An exponent of the number of rows up to which time counts as linear."""


def fit_of(method: str, threads: int) -> Callable[..., Any]:
    """Return the function that fits a method with some threads."""
    return partial(fit_catboost, threads=threads) if method == "catboost" else fit_tail


def run(method: str, rows: int, threads: int) -> Record:
    """Fit and predict with one method; return a results line."""
    trace = trace_of(ESTIMATOR if method == "tail" else None)
    fit = fit_of(method, threads)
    tables = [generated(rows, COLUMNS, seed) for seed in (0, 1)]
    (x, y), (x_new, y_new) = ((table.drop(columns="y"), table["y"].to_numpy(float)) for table in tables)
    torch.set_num_threads(threads)
    with threadpool_limits(threads):
        fit(x[:WARM_ROWS], y[:WARM_ROWS], 0)(x_new[:WARM_ROWS])
        marks = [(time.perf_counter(), time.process_time())]
        predict = fit(x, y, 0)
        marks.append((time.perf_counter(), time.process_time()))
        prediction = predict(x_new)
        marks.append((time.perf_counter(), time.process_time()))
    clock, processor = (np.diff(kind).round(3).tolist() for kind in zip(*marks, strict=True))
    inside = (prediction.lower <= y_new) & (y_new <= prediction.upper)
    return {
        "data": f"generated-{rows}",
        "rows": rows,
        "method": method,
        "title": TITLES[method],
        "seed": 0,
        "threads": threads,
        "seconds": dict(zip(("fit", "predict"), clock, strict=True)),
        "processor": dict(zip(("fit", "predict"), processor, strict=True)),
        "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        "mae": float(f"{np.abs(prediction.mean - y_new).mean():.6g}"),
        "coverage": float(f"{inside.mean():.6g}"),
        "machine": machine(),
        "trace": trace,
    }


def latest(records: Sequence[Record]) -> list[Record]:
    """Return the last line of each run, by rows."""
    found = {(r["rows"], r["method"]): r for r in records}
    return [found[key] for key in sorted(found)]


def exponent(smaller: Record, larger: Record, kind: str) -> float:
    """Return the power of the number of rows that time grows with between two runs."""
    return math.log(larger["seconds"][kind] / smaller["seconds"][kind]) / math.log(
        larger["rows"] / smaller["rows"]
    )


def verdict(lines: Sequence[Record]) -> list[str]:
    """Say of each method whether its time grows in proportion to rows over the last two sizes."""
    words = []
    for method, title in TITLES.items():
        own = [r for r in lines if r["method"] == method][-2:]
        if len(own) == 2:
            powers = {kind: exponent(*own, kind) for kind in ("fit", "predict")}
            linear = "at most" if max(powers.values()) <= LINEAR else "faster than"
            words.append(
                f"- {title}: from {own[0]['rows']:,} to {own[1]['rows']:,} rows the time of a fit grows with "
                f"the power {powers['fit']:.2f} of the rows, that of a prediction with "
                f"{powers['predict']:.2f}: {linear} in proportion."
            )
    return words


def time_table(lines: Sequence[Record], kind: str) -> str:
    """Return seconds of both methods by rows, in all and per million rows, and their ratios."""
    rows = []
    by_run = {(r["rows"], r["method"]): r for r in lines}
    for size in dict.fromkeys(r["rows"] for r in lines):
        both = [by_run.get((size, method)) for method in TITLES]
        cells = [f"{size:,}"]
        for per in (1.0, 1e6 / size):
            cells += ["-" if r is None else number(per * r["seconds"][kind]) for r in both]
        for unit in ("seconds", "processor"):
            whole = None not in both
            cells.append(number(both[1][unit][kind] / both[0][unit][kind], 2) if whole else "-")
        rows.append(cells)
    names = list(TITLES.values())
    head = ["rows", *(f"{n}, s" for n in names), *(f"{n}, s per million" for n in names)]
    return as_markdown(f"Time to {kind}", [*head, "ratio", "ratio of processor time"], rows)


def quality_table(lines: Sequence[Record]) -> str:
    """Return errors, coverage and peak memory, to see that both models learnt the same rows."""
    keys = {"mae": "MAE", "coverage": "coverage of 90% intervals", "peak_gb": "peak GB"}
    rows = [[f"{r['rows']:,}", r["title"], *(number(r[key]) for key in keys)] for r in lines]
    return as_markdown("Errors on new rows, and memory", ["rows", "model", *keys.values()], rows)


def page(records: Sequence[Record]) -> str:
    """Return the page of these lines."""
    lines = latest(records)
    title, _, _, _, *about = (__doc__ or "").strip().splitlines()
    sizes = list(dict.fromkeys(r["rows"] for r in lines))
    chosen = "" if sizes == list(SIZES) else f"--rows {' '.join(map(str, sizes))} "
    body = "\n".join(about)
    states = origin(Results({**line, "digest": ""} for line in lines))
    machines = "; ".join(place for place, _ in states["machines"])
    tables = [time_table(lines, "fit"), time_table(lines, "predict"), quality_table(lines)]
    return (
        f"# {title.rstrip('.')}\n\nWritten by `python research/studies/rows.py {chosen}--threads "
        f"{lines[0]['threads']} --write`; do not edit.\n\n{body}\n\n"
        f"Code: {'; '.join(code for code, _, _ in states['codes'])}. Machines: {machines}.\n\n"
        + "\n".join(verdict(lines))
        + "\n\nTailRegressor has five networks up to 20,000 rows and one beyond, and 3,000,000 / rows "
        "epochs at most, but 12 at least. So its time per row falls up to 250,000 rows.\n\n"
        + "\n".join(tables)
    )


def main() -> None:
    """Run what is missing, print the page and write it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--results", type=Path, default=DOCS / "rows.jsonl", help="continued if it exists")
    parser.add_argument("--write", action="store_true", help="write the page beside the results")
    parser.add_argument("--rows", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of both models")
    options = parser.parse_args()
    records = read_records(options.results)
    done = {(r["rows"], r["method"]) for r in unchanged(records)}
    missing = [(rows, method) for rows in options.rows for method in TITLES if (rows, method) not in done]
    here = (machine(), options.threads)
    for line in records if missing else ():
        if (line["machine"], line["threads"]) != here:
            parser.error(
                f"{options.results} has times of {line['machine']} with {line['threads']} threads, but this "
                f"is {here[0]} with {here[1]}: name another file with --results"
            )
    for rows, method in missing:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            records.append(pool.submit(run, method, rows, options.threads).result())
            append_record(options.results, records[-1])
        print(f"{rows:,} rows, {method}: {records[-1]['seconds']}", flush=True)
    text = page(records)
    print(text)
    if options.write:
        options.results.with_suffix(".md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
