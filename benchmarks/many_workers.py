"""One process, two gloo ranks and two Ray workers train the same model: how equal, and how fast.

    python benchmarks/many_workers.py                    # bin statistics, weights, validation curve, seconds
    python benchmarks/many_workers.py --kills 10         # Ray workers die by SIGKILL at random moments
    python benchmarks/many_workers.py --arithmetic       # the cost of the all-reduce for 100 GPUs, computed

Every way trains on the same generated rows with the same global batch, divided into as many shards as there
are workers. Seconds are the fastest epoch of each way, so that other programs on the machine disturb least.
Processor seconds are those of the busiest process; they leave out waiting for others and a busy machine.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tailwise import LabelBins, build_model
from tailwise.networks.backbones import MLP
from tailwise.networks.network import Network
from tailwise.networks.ranks import gathered
from tailwise.training.loop import FitResult, TrainConfig, fit
from tailwise.training.ray_workers import RayWorkers

MONITOR = "balanced_mae"


class Trained(NamedTuple):
    """A trained model, its history, and the processor seconds of the fastest epoch, if they are known."""

    model: Network
    result: FitResult
    processor: float = math.nan


class Clock:
    """Measures the processor time of every epoch after the first."""

    def __init__(self) -> None:
        self.last, self.epochs = time.process_time(), list[float]()

    def note(self, row: dict[str, float], best_epoch: int) -> None:
        """Note the end of an epoch."""
        now = time.process_time()
        self.epochs.append(now - self.last)
        self.last = now

    @property
    def fastest(self) -> float:
        """Seconds of the fastest epoch."""
        return min(self.epochs[1:] or self.epochs)


def table(rows: int, columns: int = 20) -> tuple[Tensor, Tensor]:
    """Return inputs and skewed labels of generated rows. (N, columns), (N,)"""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, columns, generator=generator)
    y = torch.exp(1 + 0.7 * x[:, 0] + 0.4 * x[:, 1] * x[:, 2] + 0.2 * torch.randn(rows, generator=generator))
    return x, y.clamp(max=60)


class Task:
    """The same model, rows and settings for every way to train."""

    def __init__(self, rows: int, epochs: int, batch: int, shards: int) -> None:
        x, y = table(rows + rows // 4)
        self.train, self.valid = (x[:rows], y[:rows]), (x[rows:], y[rows:])
        self.bins = LabelBins.from_labels(y[:rows])
        self.config = TrainConfig(
            epochs=epochs, batch_size=batch, shards=shards, accelerator="cpu", monitor=MONITOR, patience=None
        )

    def model(self) -> Network:
        """Return a network whose first weights are always the same: VIR with dropout and latent noise."""
        torch.manual_seed(7)
        body = MLP(self.train[0].shape[1], (256, 128), 0.1)
        return build_model("vir", body, body.feature_dim, self.bins)

    def alone(self, shards: int | None = None) -> Trained:
        """Train in this process."""
        model, clock = self.model(), Clock()
        config = self.config if shards is None else TrainConfig(**{**vars(self.config), "shards": shards})
        result = fit(model, self.train, self.valid, config, on_epoch=clock.note)
        return Trained(model, result, clock.fastest)

    def with_gloo(self, ranks: int) -> Trained:
        """Train in processes that torch starts and connects."""
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(_rank, (ranks, folder, self), nprocs=ranks)
            found = torch.load(Path(folder) / "found.pt", weights_only=True)
        model = self.model()
        model.load_state_dict(found["state"])
        return Trained(model, FitResult(**found["result"]), found["processor"])

    def with_ray(self, workers: RayWorkers) -> Trained:
        """Train in the workers of Ray."""
        model = self.model()
        return Trained(model, workers.fit(model, self.train, self.valid, self.config))


def _rank(rank: int, ranks: int, folder: str, task: Task) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    meet = f"file://{folder}/meet"
    torch.distributed.init_process_group("gloo", init_method=meet, rank=rank, world_size=ranks)
    model, result, own = task.alone()
    busiest = max(gathered(own))
    if rank == 0:
        found = {"state": model.state_dict(), "result": vars(result), "processor": busiest}
        torch.save(found, Path(folder) / "found.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def differences(one: Trained, other: Trained) -> dict[str, float]:
    """Return the largest differences of bin statistics, weights and validation curve."""
    statistics, weights = 0.0, 0.0
    for name, value in one.model.state_dict().items():
        if name.endswith("_extra_state"):
            continue
        apart = (value.double() - other.model.state_dict()[name].double()).abs()
        if "smoother." in name:
            statistics = max(statistics, float((apart / value.double().abs().clamp_min(1)).max()))
        else:
            weights = max(weights, float(apart.max()))
    curve = max(
        abs(a[MONITOR] - b[MONITOR]) / abs(a[MONITOR])
        for a, b in zip(one.result.history, other.result.history, strict=True)
    )
    return {"bin statistics": statistics, "weights": weights, "validation": curve}


def seconds(trained: Trained) -> float:
    """Return the time of the fastest epoch."""
    return min(row["seconds"] for row in trained.result.history)


def compare(task: Task, workers: RayWorkers | None, ranks: int) -> None:
    """Train in every way, and print how far each is from one process."""
    torch.set_num_threads(1)
    plain, alone = task.alone(shards=1), task.alone()
    ways = {"one process, one shard": plain, f"one process, {ranks} shards": alone}
    ways[f"{ranks} gloo ranks"] = task.with_gloo(ranks)
    if workers is not None:
        ways[f"{ranks} Ray workers"] = task.with_ray(workers)
    print(f"{'':24}{'bin statistics':>16}{'weights':>10}{'validation':>12}", end="")
    print(f"{'s/epoch':>9}{'efficiency':>12}{'processor s':>13}{'efficiency':>12}")
    for name, way in ways.items():
        line = f"{name:24}"
        if way is plain:
            line += f"{'-':>16}{'-':>10}{'-':>12}"
        else:
            apart = differences(alone, way)
            line += f"{apart['bin statistics']:16.1e}{apart['weights']:10.1e}{apart['validation']:12.1e}"
        several = way not in (plain, alone)
        times = (9, seconds(way), seconds(plain)), (13, way.processor, plain.processor)
        for room, now, then in times:
            line += f"{now:{room}.3f}" + (f"{then / now / ranks:12.2f}" if several else f"{'-':>12}")
        print(line, flush=True)


# -- chaos -----------------------------------------------------------------------------------------


def own_workers() -> list[int]:
    """Return the processes that train for this one under Ray."""
    parents: dict[int, int] = {}
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat, command = (folder / "stat").read_text(), (folder / "cmdline").read_text()
            except OSError:
                continue
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
            if command.startswith("ray::RayTrainWorker"):
                found.append(int(folder.name))

    def ours(process: int) -> bool:
        while process > 1 and process != os.getpid():
            process = parents.get(process, 0)
        return process == os.getpid()

    return [process for process in found if ours(process)]


class Killer(threading.Thread):
    """Kills one of the workers after a random time, again and again, until it has killed often enough."""

    def __init__(self, kills: int, spread: float = 0.0, seed: int = 0) -> None:
        super().__init__(daemon=True)
        self.kills, self.done, self.spread = kills, 0, spread
        self.random, self.stopped = random.Random(seed), threading.Event()
        self.seen = 0.0
        """When workers were first there."""

    def run(self) -> None:
        """Wait for workers that were not there at the last kill; kill one of them some time later."""
        before = set(own_workers())  # of a run that has just ended
        while not self.stopped.wait(0.2):
            new = set(own_workers()) - before
            self.seen = self.seen or (time.perf_counter() if new else 0.0)
            if not new or self.done == self.kills:
                continue
            self.stopped.wait(self.random.uniform(0, self.spread))
            alive = [process for process in own_workers() if process not in before]
            if alive and not self.stopped.is_set():
                os.kill(self.random.choice(alive), signal.SIGKILL)
                before |= new | set(alive)
                self.done += 1

    def during(self, task: Task, workers: RayWorkers) -> Trained:
        """Train while this thread kills."""
        self.start()
        found = task.with_ray(workers)
        self.stopped.set()
        self.join()
        return found


def chaos(task: Task, workers: RayWorkers, kills: int) -> int:
    """Kill workers until there were `kills`; return how many finished runs differ from a quiet one."""
    with workers.connected():
        watcher = Killer(0)
        quiet = watcher.during(task, workers)
        spread = time.perf_counter() - watcher.seen
        print(f"a quiet run: {spread:.1f} s from the first worker to the end", flush=True)
        done, differing, runs = 0, 0, 0
        while done < kills:
            killer = Killer(kills - done, spread, seed=runs)
            found = killer.during(task, workers)
            done, runs = done + killer.done, runs + 1
            apart = max(differences(quiet, found).values())
            differing += apart > 0
            print(f"run {runs}: {killer.done} kills, largest difference {apart:.1e}", flush=True)
    print(f"{done} kills in {runs} runs: {differing} runs differ from the quiet one")
    return differing


# -- arithmetic ------------------------------------------------------------------------------------


def all_reduce_seconds(bytes_: float, ranks: int, bandwidth: float, latency: float) -> float:
    """Return the cost of a ring all-reduce: 2 (n - 1) messages, each of a share of the bytes.

    bandwidth: bytes per second between two neighbours; latency: seconds per message.
    """
    return 2 * (ranks - 1) * (latency + bytes_ / ranks / bandwidth)


def arithmetic(rows_per_second: float, rows: float, parameters: int, bins: int, dims: int) -> None:
    """Print what follows from one worker's speed for more workers. It is computed, not measured."""
    batch = 2048
    gradient, statistics = 4.0 * parameters, 8.0 * bins * (1 + 4 * dims)
    print(f"computed, not measured: {rows:,.0f} rows, {rows_per_second:,.0f} rows/s per worker")
    print(f"{parameters:,} weights: {gradient / 1e6:.2f} MB each step; ", end="")
    print(f"{bins} bins x {dims} dimensions: {statistics / 1e6:.2f} MB each epoch")
    print(f"{'link':22}{'workers':>9}{'step ms':>9}{'reduce ms':>11}{'epoch h':>9}{'efficiency':>12}")
    links = {"10 Gbit/s, 50 us": (1.25e9, 50e-6), "400 Gbit/s, 5 us": (50e9, 5e-6)}
    for name, (bandwidth, latency) in links.items():
        for ranks in (2, 10, 100):
            step = batch / rows_per_second  # each worker keeps its batch: the global batch grows
            reduce = all_reduce_seconds(gradient, ranks, bandwidth, latency)
            end = all_reduce_seconds(statistics, ranks, bandwidth, latency)
            epoch = rows / (batch * ranks) * (step + reduce) + end
            share = rows / rows_per_second / ranks / epoch
            line = f"{name:22}{ranks:9}{1e3 * step:9.1f}{1e3 * reduce:11.2f}"
            print(f"{line}{epoch / 3600:9.2f}{share:12.2f}")


def main() -> None:
    """Read the flags and run the parts that they ask for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=80_000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8192, help="as many as a stream's")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ray", default="local", help="address of a cluster, or none")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--arithmetic", action="store_true")
    parser.add_argument("--rows-per-second", type=float, default=50_000)
    options: Any = parser.parse_args()
    if options.arithmetic:
        arithmetic(options.rows_per_second, 1e10, parameters=100_000, bins=100, dims=64)
        return
    task = Task(options.rows, options.epochs, options.batch, options.workers)
    workers = None if options.ray == "none" else RayWorkers(workers=options.workers, address=options.ray)
    if options.kills:
        assert workers is not None
        raise SystemExit(int(chaos(task, workers, options.kills) > 0))
    compare(task, workers, options.workers)


if __name__ == "__main__":
    main()
