"""What a TailRegressor costs, as ratios of times in one run, and where the time goes (docs/performance.md).

    OMP_NUM_THREADS=1 python research/studies/performance.py [PART ...] [--rows 1000 10000 100000]

Times are processor times, which other programs disturb less than wall times. The two sides of a ratio take
turns; a ratio is the median over turns, with its range. The table is drawn: 20 columns of noise, four of
which matter, and labels with a long tail. CatBoost has its own 1,000 trees, and as many threads.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import numpy as np
import torch
from catboost import CatBoostRegressor

from tailwise import TailRegressor
from tailwise.calibration.calibration import Predicted
from tailwise.model.base import CrossFit
from tailwise.model.inputs import TableInputs
from tailwise.model.training import Held, Training
from tailwise.serving.web import Service, listen, server
from tailwise.tables.encode import TablePreprocessor

Job = Callable[[], object]
PARTS = "import", "predict", "memory", "server", "growth", "pool", "fit"
MANY = 100_000
IMPORTS = "from tailwise import TailRegressor", "import torch, catboost"


def drawn(rows: int, columns: int = 20, targets: int = 1) -> tuple[Any, Any]:
    """Return X and y."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, columns))
    y = np.exp(X[:, 0] / 2 + X[:, 1] * X[:, 2] / 4) + X[:, 3] / 2 + rng.normal(size=rows) / 10
    return X, y if targets == 1 else np.stack([np.roll(X, k, 1)[:, 0] + y for k in range(targets)], 1)


def seconds(job: Job) -> float:
    """Return the processor time of a call."""
    began = time.process_time()
    job()
    return time.process_time() - began


def say(
    name: str, above: list[float], below: list[float], limit: float | None = None, unit: float = 1
) -> None:
    """Print a ratio, the time above it and whether it keeps a limit."""
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    middle, verdict = statistics.median(ratios), ""
    if limit is not None:
        verdict = f"limit {limit}: {'holds' if middle <= limit else 'MISSED'}"
    time_of_it = f"{statistics.median(above) * unit:9.3g} {'ms' if unit == 1000 else 's '}"
    spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
    print(f"{name:58s}{time_of_it}{middle:8.2f} {spread:18s}{verdict}", flush=True)


def in_turns(jobs: tuple[Job, ...], turns: int, calls: int = 1) -> list[list[float]]:
    """Return the processor times of each job, by turns."""
    times: list[list[float]] = [[] for _ in jobs]
    for job in jobs:
        job()
    for _ in range(turns):
        for job, of_job in zip(jobs, times, strict=True):
            of_job.append(seconds(lambda job=job: [job() for _ in range(calls)]) / calls)
    return times


def importing(code: str) -> float:
    """Return the processor time of a new process that imports."""
    process = subprocess.Popen([sys.executable, "-c", code])
    _, _, usage = os.wait4(process.pid, 0)
    return usage.ru_utime + usage.ru_stime


@contextmanager
def shares(parts: dict[str, tuple[Any, str]]) -> Iterator[dict[str, float]]:
    """Collect the processor time of methods by name, without that of others inside them."""
    spent, inside = dict.fromkeys(parts, 0.0), [0.0]
    with ExitStack() as stack:
        for name, (owner, method) in parts.items():
            plain = getattr(owner, method)

            def timed(*args: Any, _name: str = name, _plain: Any = plain, **options: Any) -> Any:
                began, inside[-1:] = time.process_time(), [inside[-1], 0.0]
                try:
                    return _plain(*args, **options)
                finally:
                    whole = time.process_time() - began
                    spent[_name] += whole - inside.pop()
                    inside[-1] += whole

            stack.enter_context(patch.object(owner, method, timed))
        yield spent


def say_shares(what: str, spent: dict[str, float], whole: float) -> None:
    """Print where the time went."""
    parts = {**spent, "rest": whole - sum(spent.values())}
    print(f"{what}: " + ", ".join(f"{name} {part / whole:.0%}" for name, part in parts.items()), flush=True)


def slope(sizes: list[int], times: list[float]) -> str:
    """Return the slope of log time by log size."""
    return f"{np.polyfit(np.log(sizes), np.log(times), 1)[0]:.2f} ({sizes[0]:,} to {sizes[-1]:,})"


def fits(rows: int, turns: int, limit: float | None, **options: Any) -> TailRegressor:
    """Print the cost of fits of so many rows; return a model."""
    X, y = drawn(rows)
    plain = CatBoostRegressor(thread_count=torch.get_num_threads(), allow_writing_files=False, verbose=False)
    models, above, below = [], [], []
    of_fit = {
        "base": (CrossFit, "fit"),
        "networks": (Training, "run"),
        "calibration": (Held, "calibrations"),
        "encoding": (TablePreprocessor, "fit"),
    }
    with shares(of_fit) as spent:
        for seed in range(turns):
            models.append(TailRegressor(random_state=seed, device="cpu", **options))
            above.append(seconds(lambda: models[-1].fit(X, y)))
            below.append(seconds(lambda: plain.fit(X, y)))
    asked = "".join(f", {name}={value}" for name, value in options.items())
    say(f"fit of {rows:,} rows{asked} / CatBoost", above, below, limit)
    say_shares("  of it", spent, sum(above))
    return models[0]


def predictions(model: TailRegressor, turns: int, asked: str = "") -> None:
    """Print the cost of predictions."""
    fitted, (one, _) = model.model_, drawn(1)
    X, _ = drawn(MANY)

    def base(X: Any) -> Job:
        matrix = fitted.encode(X).matrix
        return lambda: fitted.base.offset(matrix, len(matrix), None)

    row, base_row = in_turns((lambda: model.predict_interval(one), base(one)), turns, 20)
    say(f"one row of predict_interval{asked} / its base", row, base_row, None, 1000)
    jobs = (lambda: model.predict(X), base(X), lambda: model.predict_interval(X))
    point, of_base, interval = in_turns(jobs, turns)
    say(f"{MANY:,} rows of predict{asked} / its base", point, of_base, 5)
    say(f"{MANY:,} rows of predict_interval{asked} / predict", interval, point, 1.5)
    of_predict = {
        "base": (type(fitted.base), "offset"),
        "encoding": (TableInputs, "encode"),
        "calibration and intervals": (Predicted, "interval"),
    }
    with shares(of_predict) as spent:
        whole = seconds(lambda: model.predict_interval(X))
    say_shares("  of predict_interval (rest: networks)", spent, whole)


def memory(model: TailRegressor) -> None:
    """Print by how much predictions raise the peak of memory, on Linux."""
    X, _ = drawn(4 * MANY)
    encoded = model.model_.encode(X)
    size = encoded.matrix.nbytes + encoded.x.nbytes
    del encoded
    ctypes.CDLL(None).malloc_trim(0)

    def status(name: str) -> int:
        text = Path("/proc/self/status").read_text()
        return 1024 * int(text.split(name)[1].split()[0])

    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS:")
    model.predict_interval(X)
    ratio = (status("VmHWM:") - before) / size
    verdict = f"limit 3: {'holds' if ratio <= 3 else 'MISSED'}"
    print(f"peak memory of {4 * MANY:,} rows / {size / 2**20:.0f} MiB of encoded rows: {ratio:.2f} {verdict}")


def served(model: TailRegressor) -> None:
    """Print the time to an answer of the server, over a connection on this machine."""
    service = Service(model)
    web, sock = server(service), listen("127.0.0.1", 0)
    thread = threading.Thread(target=lambda: web.run(sockets=[sock]))
    thread.start()
    times = []
    with httpx.Client(base_url=f"http://127.0.0.1:{sock.getsockname()[1]}", timeout=60) as client:
        for _ in range(400):
            began = time.perf_counter()
            client.post("/predict", json={"rows": [service.columns.example]}).raise_for_status()
            times.append(1000 * (time.perf_counter() - began))
    web.should_exit = True
    thread.join()
    half = statistics.median(times[50:])
    verdict = f"limit 8: {'holds' if half <= 8 else 'MISSED'}"
    print(f"answer of the server for one row, wall time: half within {half:.1f} ms, {verdict}", flush=True)


def growth(model: TailRegressor) -> None:
    """Print how times grow."""
    rows = [3000, 10_000, 30_000, 100_000]
    tables = [drawn(n)[0] for n in rows]
    times = [min(in_turns((lambda X=X: model.predict_interval(X),), 3)[0]) for X in tables]
    print("slopes: predict by rows", slope(rows, times), end="; ", flush=True)
    X, _ = drawn(10_000)
    counts = [9, 33, 99]
    levels = [np.linspace(0.01, 0.99, n) for n in counts]
    times = [min(in_turns((lambda q=q: model.predict_quantiles(X, q),), 2)[0]) for q in levels]
    print("by quantiles", slope(counts, times), end="; ", flush=True)
    for name, sizes, drawings in (
        ("fit by rows", [500, 2000], [drawn(500), drawn(2000)]),
        ("by columns", [10, 40], [drawn(500, 10), drawn(500, 40)]),
        ("by targets", [1, 4], [drawn(500), drawn(500, targets=4)]),
    ):
        times = [
            seconds(lambda X=X, y=y: TailRegressor(random_state=0, device="cpu").fit(X, y))
            for X, y in drawings
        ]
        print(name, slope(sizes, times), end="; ", flush=True)
    print()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="PART", help=" ".join(PARTS))
    parser.add_argument("--rows", type=int, nargs="*", default=[1000, 10_000], help="rows of fits")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    turns, began = options.turns, time.perf_counter()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    machine = f"{torch.get_num_threads()} threads, {os.cpu_count()} processors, load {os.getloadavg()[0]:.0f}"
    print(f"torch {torch.__version__}, {machine}\n{'':58s}{'time':>11s}{'ratio':>8s}", flush=True)
    if "import" in options.parts:
        pairs = [[importing(code) for code in IMPORTS] for _ in range(turns)]
        say("import of TailRegressor / torch and CatBoost", *map(list, zip(*pairs, strict=True)), 1.3)
    if {"predict", "memory", "server", "growth"} & {*options.parts}:
        model = fits(1000, 1, None)
        with tempfile.TemporaryDirectory() as folder:
            size = model.save(Path(folder) / "m.tailwise").stat().st_size / 1e6
        print(f"model file: {size:.2f} MB, limit 3: {'holds' if size <= 3 else 'MISSED'}", flush=True)
        if "predict" in options.parts:
            predictions(model, turns)
        if "memory" in options.parts:
            memory(model)
        if "server" in options.parts:
            served(model)
        if "growth" in options.parts:
            growth(model)
    if "pool" in options.parts:
        predictions(fits(1000, 1, 4, pool=True), turns, ", pool=True")
    for rows in options.rows if "fit" in options.parts else ():
        fits(rows, 3 if rows < MANY else 1, 4)
    print(f"{time.perf_counter() - began:.0f} s in all")


if __name__ == "__main__":
    main()
