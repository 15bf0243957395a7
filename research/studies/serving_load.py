"""Load on `tailwise serve`: speed, behaviour at twice the capacity, and answers compared with `predict`.

The server is a process of its own, and this one is its client (httpx):

    python research/studies/serving_load.py --requests 10000

1. A closed loop of clients, each of which waits for its answer before it asks again, measures the capacity.
2. An open loop sends requests at twice that rate, whatever the answers. Those beyond the queue must get
   status 503 with Retry-After, quickly; the others the right answer; and the memory of the server must not
   grow.

Every answer is compared with `TailRegressor.predict_frame`, or `predict_quantiles`. The exit code is 1 if one
is wrong, lost, or has another status than 200 or 503.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

TOLERANCE = 1e-5
"""Largest difference to `predict`, in standard deviations of the label: rounding of float32 in batches."""


@dataclass
class Tally:
    """What came back."""

    seconds: dict[int, list[float]] = field(default_factory=dict)
    wrong: int = 0
    lost: int = 0
    without_retry: int = 0
    rows: int = 0
    answers: list[tuple[int, bytes]] = field(default_factory=list)
    """The number of each question with its answer, to check when the clock has stopped."""

    def count(self, status: int) -> int:
        return len(self.seconds.get(status, ()))

    @property
    def others(self) -> int:
        """Answers with another status than 200 and 503."""
        return sum(len(times) for status, times in self.seconds.items() if status not in (200, 503))

    @property
    def good(self) -> bool:
        return not (self.wrong or self.lost or self.without_retry or self.others)

    def milliseconds(self, status: int) -> str:
        times = self.seconds.get(status)
        if not times:
            return "none"
        p50, p99 = np.quantile(times, [0.5, 0.99]) * 1000
        return f"p50 {p50:.0f} ms, p99 {p99:.0f} ms"


class Questions:
    """Requests with known answers: one to five rows of a table, with four kinds of options."""

    kinds: Sequence[dict[str, Any]] = (
        {},
        {"coverage": 0.5},
        {"emphasis": 1.0},
        {"quantiles": [0.1, 0.9]},
    )

    def __init__(self, model: Any, table: Any, unit: float, seed: int) -> None:
        self.rows = table.to_dict(orient="records")
        self.unit = unit
        self._rng = np.random.default_rng(seed)
        self._frames = [
            model.predict_frame(table, kind.get("coverage", 0.9), emphasis=kind.get("emphasis"))
            for kind in self.kinds
        ]
        self._levels = model.predict_quantiles(table, [0.1, 0.9])

        self.asked = [self._made() for _ in range(400)]

    def _made(self) -> tuple[bytes, int, list[int]]:
        kind = int(self._rng.integers(len(self.kinds)))
        own = self._rng.integers(len(self.rows), size=self._rng.integers(1, 6)).tolist()
        body = {"rows": [self.rows[row] for row in own], **self.kinds[kind]}
        return json.dumps(body).encode(), kind, own

    def check(self, tally: Tally) -> None:
        """Count wrong answers."""
        for number, content in tally.answers:
            _, kind, own = self.asked[number]
            tally.rows += len(own)
            tally.wrong += not self.is_right(kind, own, json.loads(content))

    def is_right(self, kind: int, own: list[int], answer: Any) -> bool:
        expected = self._frames[kind].iloc[own]
        given = answer["predictions"]
        names = ["prediction", "std", "lower", "upper"]
        found = np.array([[row[name] for name in names] for row in given], float)
        right = found.shape == (len(own), 4)
        right = right and bool(np.abs(found - expected[names].to_numpy()).max() <= TOLERANCE * self.unit)
        right = right and [row["region"] for row in given] == expected["region"].tolist()
        if right and "quantiles" in self.kinds[kind]:
            levels = np.array([[row["quantiles"][q] for q in ("0.1", "0.9")] for row in given])
            right = bool(np.abs(levels - self._levels[own]).max() <= TOLERANCE * self.unit)
        return right


async def ask(client: httpx.AsyncClient, questions: Questions, tally: Tally) -> None:
    """Send one request and check its answer."""
    number = random.randrange(len(questions.asked))
    body = questions.asked[number][0]
    began = time.perf_counter()
    try:
        answer = await client.post("/predict", content=body)
    except httpx.TransportError as error:
        tally.lost += 1
        print(f"  lost after {time.perf_counter() - began:.1f} s: {error!r}")
        return
    tally.seconds.setdefault(answer.status_code, []).append(time.perf_counter() - began)
    if answer.status_code == 200:
        tally.answers.append((number, answer.content))
    elif answer.status_code == 503:
        tally.without_retry += "retry-after" not in answer.headers


async def closed_loop(clients: Sequence[httpx.AsyncClient], questions: Questions, count: int) -> Tally:
    """Let each client ask again as soon as it has its answer."""
    tally, left = Tally(), count

    async def one(client: httpx.AsyncClient) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await ask(client, questions, tally)

    await asyncio.gather(*(one(client) for client in clients))
    return tally


async def open_loop(
    clients: Sequence[httpx.AsyncClient], questions: Questions, rate: float, seconds: float
) -> Tally:
    """Send requests at a steady rate, whether or not answers come back."""
    tally, tasks, began = Tally(), [], time.perf_counter()
    for k in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, began + k / rate - time.perf_counter()))
        tasks.append(asyncio.create_task(ask(clients[k % len(clients)], questions, tally)))
    await asyncio.gather(*tasks)
    return tally


def memory(process: subprocess.Popen[str]) -> float:
    """Return the memory of a process in MiB; NaN where the system does not tell."""
    try:
        text = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    except OSError:
        return float("nan")
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    return int(found[1]) / 1024 if found else float("nan")


async def measure(address: str, process: subprocess.Popen[str], questions: Questions, options: Any) -> bool:
    context = ssl.create_default_context()  # not used here, but each client would make its own
    async with AsyncExitStack() as stack:
        # The time that a pool takes grows with the square of its connections: a pool for each client.
        clients = [
            await stack.enter_async_context(httpx.AsyncClient(base_url=address, timeout=120, verify=context))
            for _ in range(options.clients)
        ]
        await closed_loop(clients, questions, 4 * options.clients)  # warm up
        began = time.perf_counter()
        usual = await closed_loop(clients, questions, options.requests)
        spent = time.perf_counter() - began
        questions.check(usual)
        rate = usual.count(200) / spent
        print(
            f"{options.clients} clients: {usual.count(200)} answers in {spent:.1f} s, {rate:.0f} requests "
            f"and {usual.rows / spent:.0f} rows per second, {usual.milliseconds(200)}"
        )
        print(f"  wrong {usual.wrong}, lost {usual.lost}, refused {usual.count(503)}, other {usual.others}")
        figures = dict(re.findall(r"^(tailwise_\w+) (\S+)$", (await clients[0].get("/metrics")).text, re.M))
        calls = float(figures["tailwise_batches_total"])
        print(
            f"  the model was called {calls:.0f} times: "
            f"{float(figures['tailwise_rows_total']) / calls:.0f} rows and "
            f"{1000 * float(figures['tailwise_busy_seconds_total']) / calls:.0f} ms at a time"
        )
        before = memory(process)
        over = await open_loop(clients, questions, 2 * rate, options.seconds)
        after = memory(process)
        questions.check(over)
        sent = sum(map(len, over.seconds.values())) + over.lost
        print(
            f"twice the capacity: {sent} requests at {2 * rate:.0f} per second, {over.count(200)} answered "
            f"({over.milliseconds(200)}), {over.count(503)} refused ({over.milliseconds(503)})"
        )
        print(
            f"  wrong {over.wrong}, lost {over.lost}, without Retry-After {over.without_retry}, "
            f"other {over.others}"
        )
        print(f"  memory of the server {before:.0f} MiB before, {after:.0f} MiB after")
        return usual.good and over.good and sent == int(2 * rate * options.seconds)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20.0, help="of the open loop")
    parser.add_argument("--max-waiting", type=int, default=64)
    parser.add_argument("--rows", type=int, default=400, help="rows of abalone to train on")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--plain", action="store_true", help="one network without boosted trees")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    from tailwise import TailRegressor
    from tailwise.data import load_abalone

    options = parse(arguments)
    random.seed(options.seed)
    table = load_abalone()
    X, y = table.drop(columns="Rings"), table["Rings"].astype(float)
    kind: dict[str, Any] = {"base": None, "folds": 1} if options.plain else {}
    model = TailRegressor(epochs=options.epochs, random_state=options.seed, **kind)
    model.fit(X[: options.rows], y[: options.rows])
    questions = Questions(model, X[options.rows : options.rows + 500], float(y.std()), options.seed)
    with tempfile.TemporaryDirectory() as folder:
        file = model.save(Path(folder) / "abalone.tailwise")
        line = [sys.executable, "-m", "tailwise", "serve", str(file), "--port", "0"]
        line += ["--max-waiting", str(options.max_waiting), "--threads", str(options.threads)]
        with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            address = re.search(r"http://\S+", process.stderr.readline())
            assert address is not None, process.stderr.read()
            try:
                good = asyncio.run(measure(address[0], process, questions, options))
            finally:
                process.terminate()
            print(f"the server {process.stderr.read().strip().splitlines()[-1]}, code {process.wait(60)}")
    return 0 if good and process.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
