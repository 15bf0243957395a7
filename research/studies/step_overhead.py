"""Time of a training step with VIR and without, for different numbers of label bins.

A step is forward, backward and optimiser. In each round all models are timed in turn, in a rotating order,
and ratios are taken within rounds, so that a busy machine slows both sides equally. Exits with 1 if VIR's
step takes more than 10% longer with 1000 bins than with 10.

    python research/studies/step_overhead.py [--device cuda] [--steps 200]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import torch

from tailwise.labels.bins import LabelBins
from tailwise.networks.backbones import MLP
from tailwise.networks.network import Network
from tailwise.networks.parts import Method
from tailwise.networks.vir import VIR

BINS = (10, 100, 1000)
INPUTS, HIDDEN, BATCH, ROWS = 64, (256, 128), 256, 16_384
MAX_GROWTH = 1.10
Key = tuple[str, int]


class Trainee:
    """A model with its optimiser and data, all on the device."""

    def __init__(self, kind: str, count: int, device: torch.device) -> None:
        torch.manual_seed(0)
        self.device = device
        self.x = torch.randn(ROWS, INPUTS, device=device)
        labels = torch.rand(ROWS, dtype=torch.float64) ** 2
        self.y = labels.float().to(device)
        bins = LabelBins.from_labels(labels, count=count)
        backbone = MLP(INPUTS, HIDDEN)
        model: Network
        if kind == "VIR":
            model = VIR(backbone, HIDDEN[-1], bins)
        else:
            model = Network(backbone, HIDDEN[-1], bins, Method())
        self.model = model.to(device).train()
        parameters = self.model.parameters()
        self.optimizer = torch.optim.AdamW(parameters, 1e-3, fused=device.type == "cuda")

    def wait(self) -> None:
        """Wait until the device is idle."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def step(self, number: int) -> float:
        """Take one step and return its seconds."""
        start = number * BATCH % ROWS
        x, y = self.x[start : start + BATCH], self.y[start : start + BATCH]
        self.wait()
        began = time.perf_counter()
        loss, _ = self.model.loss(x, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.wait()
        return time.perf_counter() - began

    def end_epoch(self) -> float:
        """End the epoch, which updates the latent statistics, and return its seconds."""
        self.wait()
        began = time.perf_counter()
        self.model.end_epoch()
        self.wait()
        return time.perf_counter() - began


def measure(steps: int, device: torch.device) -> tuple[dict[Key, list[float]], dict[Key, float]]:
    """Return the seconds of every step and of the end of an epoch, for each model."""
    models = {(kind, count): Trainee(kind, count, device) for count in BINS for kind in ("vanilla", "VIR")}
    for model in models.values():
        for number in range(10):
            model.step(number)
        model.end_epoch()  # from here on rows are recoloured
    keys = list(models)
    seconds: dict[Key, list[float]] = {key: [] for key in keys}
    for number in range(steps):
        turn = number % len(keys)
        for key in keys[turn:] + keys[:turn]:
            seconds[key].append(models[key].step(number))
    return seconds, {key: model.end_epoch() for key, model in models.items()}


def median_ratio(above: list[float], below: list[float]) -> float:
    """Return the median over rounds of the ratio of two models' times."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def main() -> int:
    """Measure, print the table and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--steps", type=int, default=200, help="number of rounds")
    options = parser.parse_args()
    seconds, ends = measure(options.steps, torch.device(options.device))

    print(f"step of {BATCH} rows, {INPUTS} inputs, hidden {HIDDEN}; ", end="")
    print(f"{options.device}, {options.steps} rounds")
    print("  bins  vanilla ms    VIR ms   VIR / vanilla   epoch's end ms")
    for count in BINS:
        vanilla, vir = seconds["vanilla", count], seconds["VIR", count]
        times = 1e3 * statistics.median(vanilla), 1e3 * statistics.median(vir)
        print(f"{count:6d}{times[0]:12.3f}{times[1]:10.3f}", end="")
        print(f"{median_ratio(vir, vanilla):16.3f}{1e3 * ends['VIR', count]:17.3f}")
    growth = median_ratio(seconds["VIR", BINS[-1]], seconds["VIR", BINS[0]])
    passed = growth <= MAX_GROWTH
    print(f"VIR's step from {BINS[0]} to {BINS[-1]} bins: {growth - 1:+.1%} ", end="")
    print(f"(limit {MAX_GROWTH - 1:+.0%}) {'PASS' if passed else 'FAIL'}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
