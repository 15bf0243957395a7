"""Fit one epoch on a table larger than memory: rows per second, peak memory, and exact counts per bin.

    python research/studies/streaming.py 1e6 1e7 5e7 --folder /tmp/rows

For each number of rows it writes that many rows of 20 inputs as Parquet (18 floats, a category, an integer,
and a skewed target; 115 bytes a row), unless the folder has them already. A process of its own then calls
`TailRegressor.fit_batches` for one epoch, so that its peak memory is that of the fit. Counts per bin are
compared with those of the labels, which are read file by file without the stream.

Seconds are wall clock: of the whole call, of the epoch with its validation, and of all threads together
(processor). `--base none` leaves out the boosted trees, `--cpu 1` binds the fit to one processor. With
`--evaluate`, `tailwise evaluate` then measures the model on all rows, in a process of its own too.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

FILE_ROWS, GROUP_ROWS = 2_000_000, 131_072
FLOATS = 18
MODEL = "_model.tailwise"
PLACES = np.array(["centre", "coast", "east", "hills", "north", "south", "valley", "west"])


def write_rows(folder: Path, rows: int, file_rows: int = FILE_ROWS, group_rows: int = GROUP_ROWS) -> None:
    """Write the same rows every time, file by file; a folder that has them all stays as it is."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    done = folder / "_rows.json"
    told = [rows, file_rows, group_rows]
    if done.exists() and json.loads(done.read_text()) == told:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.parquet"):
        path.unlink()
    for number, start in enumerate(range(0, rows, file_rows)):
        n, rng = min(file_rows, rows - start), np.random.default_rng([2023, number])
        x = rng.standard_normal((FLOATS, n), dtype=np.float32)
        place, visits = rng.integers(0, len(PLACES), n), rng.poisson(3, n)
        noise = 0.3 * rng.standard_normal(n, dtype=np.float32)
        price = np.exp(0.8 * x[0] + 0.3 * np.sin(3 * x[1]) + 0.1 * place + 0.05 * visits + noise)
        columns: dict[str, Any] = {f"x{k}": x[k] for k in range(FLOATS)}
        columns["place"] = pa.DictionaryArray.from_arrays(pa.array(place.astype(np.int8)), pa.array(PLACES))
        columns["visits"] = pa.array(visits.astype(np.int32))
        columns["price"] = price.astype(np.float32)
        pq.write_table(pa.table(columns), folder / f"part-{number:04d}.parquet", row_group_size=group_rows)
    done.write_text(json.dumps(told))


def exact_counts(folder: Path, model: Any, held_out: Any) -> np.ndarray:
    """Count the labels of training rows in the bins of a model, without the stream."""
    import pandas as pd
    import pyarrow.parquet as pq

    counts, start = np.zeros(len(model.bins_), np.int64), 0
    for path in sorted(folder.glob("*.parquet")):
        labels = pq.read_table(path, columns=["price"]).column(0).to_numpy().astype(np.float64)
        numbered = pd.DataFrame(index=pd.RangeIndex(start, start + len(labels)))
        counts += np.bincount(model.bins_.index(labels[~held_out(numbered)]), minlength=len(counts))
        start += len(labels)
    return counts


@contextmanager
def replaced(places: Any, change: Any) -> Iterator[None]:
    """Replace functions by changed ones, and put them back."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    for (owner, name, call), (_, _, what) in zip(before, places, strict=True):
        setattr(owner, name, change(call, what))
    try:
        yield
    finally:
        for owner, name, call in before:
            setattr(owner, name, call)


def measure(folder: Path, base: str | None, epochs: int) -> dict[str, Any]:
    """Fit on the rows of a folder; return what it took."""
    from tailwise import TailRegressor
    from tailwise.model import fit, stream

    given: list[Any] = []
    spent: dict[str, float] = {}

    def timed(call: Any, name: str) -> Any:
        def timing(*arguments: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*arguments, **options)
            finally:
                spent[name] = spent.get(name, 0.0) + time.perf_counter() - began
                given.extend(a for a in arguments if isinstance(a, stream.StreamedRows))

        return timing

    places = (
        (stream, "first_pass", "passes"),
        (stream, "second_pass", "passes"),
        (stream._StreamFit, "_base", "base"),
        (stream.StreamedRows, "encoded", "encoding"),
        (fit, "train", "training"),
    )
    with replaced(places, timed):
        before, began = time.process_time(), time.perf_counter()
        model = TailRegressor(base=base, epochs=epochs, random_state=0, verbose=1)
        model.fit_batches(folder, "price")
    seconds, processor = time.perf_counter() - began, time.process_time() - before
    peak = peak_memory()
    model.save(folder / MODEL, overwrite=True)
    rows = given[0]
    epoch = float(np.mean([row["seconds"] for row in model.histories_[0].history]))
    return {
        "rows": rows.row_count,
        "bytes": sum(path.stat().st_size for path in folder.glob("*.parquet")),
        "seconds": seconds,
        "epoch": epoch,
        "processor": processor,
        "rows_per_second": rows.row_count / epoch,
        "peak": peak,
        "exact": bool((exact_counts(folder, model, rows.survey.held_out) == model.bins_.counts).all()),
        "bins": len(model.bins_),
        "base": "none" if model.base_ is None else f"{len(model.base_[0].models)} folds",
        "nll": model.histories_[0].best_score,
        "spent": spent,
    }


def peak_memory() -> int:
    """Return the most memory that this process had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def evaluate(folder: Path) -> str:
    """Run `tailwise evaluate` on the rows of a folder; return what it took, in a sentence."""
    from tailwise.cli.app import app

    before, told = time.process_time(), io.StringIO()
    with redirect_stdout(told):
        app(["evaluate", str(folder / MODEL), str(folder), "--quiet", "--json"], standalone_mode=False)
    rows = json.loads(told.getvalue())["regions"]["all"]["n"]
    seconds = time.process_time() - before
    return f"evaluated {rows:,.0f} rows: {seconds:.0f} s processor, {peak_memory() / 2**30:.2f} GiB"


def line(found: dict[str, Any]) -> str:
    """Return a row of the table."""
    return (
        f"| {found['rows']:,} | {found['bytes'] / 1e9:.2f} GB | {found['base']} | {found['seconds']:.0f} "
        f"| {found['epoch']:.0f} | {found['rows_per_second']:,.0f} | {found['processor']:.0f} "
        f"| {found['peak'] / 2**30:.2f} GiB | {'equal' if found['exact'] else 'DIFFERENT'} |"
    )


def parts(found: dict[str, Any]) -> str:
    """Return where the seconds went, in a sentence."""
    spent = {name: f"{value:.0f} s" for name, value in found["spent"].items()}
    return (
        f"{found['rows']:,} rows: two passes {spent['passes']}; fitting encodings and base "
        f"{spent['base']}; training {spent['training']}, while a thread encoded for "
        f"{spent['encoding']}, the base's predictions included"
    )


HEADER = """\
| training rows | Parquet | base | seconds | of which epoch | rows per second of the epoch | processor \
| peak memory | counts per bin |
|---|---|---|---|---|---|---|---|---|"""


def main() -> None:
    """Write rows, and measure a fit on each number of them in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("rows", nargs="+", type=float, help="numbers of rows, such as 1e6")
    parser.add_argument("--folder", type=Path, required=True, help="where to write the rows")
    parser.add_argument("--base", default="auto", help="base of the estimator; none for no base")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--evaluate", action="store_true", help="evaluate the model on all rows too")
    parser.add_argument("--only", choices=["write", "fit", "evaluate"], help=argparse.SUPPRESS)
    parser.add_argument("--cpu", type=int, help="bind the fit to as many processors")
    given = parser.parse_args()
    options = ["--folder", str(given.folder), "--base", given.base, "--epochs", str(given.epochs)]
    options += ["--cpu", str(given.cpu)] if given.cpu else []
    if given.only is None:
        print(HEADER)
    told = []
    for count in map(int, given.rows):
        folder = given.folder / str(count)
        if given.only == "write":
            write_rows(folder, count)
        elif given.only == "fit":
            if given.cpu:
                os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: given.cpu]))
            print(json.dumps(measure(folder, None if given.base == "none" else given.base, given.epochs)))
        elif given.only == "evaluate":
            print(evaluate(folder))
        else:
            said = {}
            for step in ("write", "fit", *(["evaluate"] if given.evaluate else [])):
                words = [sys.executable, __file__, str(count), *options, "--only", step]
                said[step] = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
            found = json.loads(said["fit"])
            print(line(found), flush=True)
            told += [parts(found), *([said["evaluate"].strip()] if given.evaluate else [])]
            if not found["exact"]:
                sys.exit("counts per bin differ from those of the labels")
    if told:
        print("\n".join(["", *told]))


if __name__ == "__main__":
    main()
