"""Time of SMOGN on abalone, compared with the PyPI package `smogn`, and on 100,000 rows of 20 columns.

The package needs NumPy below 1.24 and pandas below 2, so it runs in a separate interpreter; without one it is
left out with a note. It gets the same control points, threshold, k and noise. Exits with 1 if ours is less
than 100 times as fast, or takes more than 4 GB.

    python3.9 -m venv /tmp/peer && /tmp/peer/bin/pip install smogn 'numpy<1.24' 'pandas<2'
    python research/studies/smogn.py --peer-python /tmp/peer/bin/python
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from tailwise.data import load_abalone
from tailwise.resampling.relevance import RelevanceFunction
from tailwise.resampling.smogn import smogn

ROWS, COLUMNS = 100_000, 20
MIN_RATIO, MAX_BYTES = 100.0, 4e9

# Reads a table, prints the seconds of the resampling alone, and the rows that came out.
PEER = """
import sys, time
import pandas, smogn
table = pandas.read_csv(sys.argv[1])
points = [[float(v) for v in row.split(",")] for row in sys.argv[2].split(";")]
began = time.perf_counter()
new = smogn.smoter(data=table, y="Rings", k=5, pert=0.02, samp_method="balance", rel_thres=0.8,
                   rel_method="manual", rel_ctrl_pts_rg=points)
print("\\nPEER", time.perf_counter() - began, len(new), float(new["Rings"].mean()))
"""


def ours(table: pd.DataFrame, repeats: int) -> tuple[float, int, float]:
    """Return the median seconds, the number of resulting rows and their mean label."""
    X, y = table.drop(columns="Rings"), table["Rings"]
    seconds = []
    for seed in range(repeats):
        began = time.perf_counter()
        _, new_y = smogn(X, y, seed=seed)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds), len(new_y), float(new_y.mean())


def peer(table: pd.DataFrame, python: str) -> tuple[float, int, float] | str:
    """Return the seconds, rows and mean label of the package, or the reason why it did not run."""
    points = ";".join(
        ",".join(map(repr, map(float, p))) for p in RelevanceFunction.from_labels(table["Rings"]).points
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "abalone.csv"
        table.to_csv(path, index=False)
        command = [python, "-W", "ignore", "-c", PEER, str(path), points]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=900, cwd=folder, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("PEER ")]
    if not lines:
        return (done.stderr.strip().splitlines() or ["no output"])[-1]
    return float(lines[0][0]), int(lines[0][1]), float(lines[0][2])


def large(results: multiprocessing.Queue[tuple[float, int, int, float]]) -> None:
    """Resample a large table in a process of its own, to measure its peak memory."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, COLUMNS))
    y = np.exp(X[:, 0] + 0.5 * rng.standard_normal(ROWS))
    rare = int((RelevanceFunction.from_labels(y)(y) >= 0.8).sum())
    began = time.perf_counter()
    _, new_y = smogn(X, y)
    seconds = time.perf_counter() - began
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    results.put((seconds, rare, len(new_y), peak))


def verdict(passed: bool) -> str:
    """Return PASS or FAIL."""
    return "PASS" if passed else "FAIL"


def main() -> int:
    """Measure, print and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--peer-python", help="an interpreter that has `smogn` installed")
    parser.add_argument("--repeats", type=int, default=11, help="number of runs on abalone")
    options = parser.parse_args()
    passed = True

    table = load_abalone()
    ours(table, 1)  # the first call imports modules
    seconds, rows, mean = ours(table, options.repeats)
    print(f"abalone, {len(table)} rows: {seconds:.4f} s (median of {options.repeats}), ", end="")
    print(f"{rows} rows out, mean label {mean:.2f}")
    other = "no --peer-python was given" if options.peer_python is None else peer(table, options.peer_python)
    if isinstance(other, str):
        print(f"  PyPI smogn: left out ({other})")
    else:
        ratio = other[0] / seconds
        passed &= ratio >= MIN_RATIO
        print(f"  PyPI smogn: {other[0]:.1f} s, {other[1]} rows out, mean label {other[2]:.2f}; ", end="")
        print(f"{ratio:.0f} times slower (at least {MIN_RATIO:.0f}) {verdict(ratio >= MIN_RATIO)}")

    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=large, args=(results,))
    process.start()
    seconds, rare, rows, peak = results.get(timeout=600)
    process.join()
    held = peak < MAX_BYTES
    passed &= held
    print(f"{ROWS} x {COLUMNS}, {rare} rare rows: {seconds:.1f} s, {rows} rows out, ", end="")
    print(f"peak {peak / 1e9:.2f} GB (limit {MAX_BYTES / 1e9:.0f} GB) {verdict(held)}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
