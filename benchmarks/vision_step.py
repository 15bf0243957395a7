"""Pictures per second of a training step: vanilla, VIR and VIR with a decoder on a ResNet-50.

A step is forward, backward, clipping and optimiser, on random pictures that lie on the device. Modes are
`eager`, and `graph`, the step as a CUDA graph (`TrainConfig.graphs`). `share` is the speed as a share of
vanilla's in the same mode, batch and precision. In each round all models take their turn; figures are
medians.

    python benchmarks/vision_step.py                        # on a GPU, about one minute
    python benchmarks/vision_step.py --smoke                # on a CPU, seconds: does it run?
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
import torch
from torch import Tensor, nn

from tailwise.labels.bins import LabelBins
from tailwise.methods import build_model
from tailwise.networks.backbones.images import ImageDecoder, make_image_backbone
from tailwise.training.batches import Batch
from tailwise.training.config import TrainConfig, make_optimizer
from tailwise.training.steps import WARM, GraphedStep, TrainingStep, fast_kernels

KINDS = ("vanilla", "VIR", "VIR + decoder")
MODES = ("eager", "graph")
BINS, MORE_BINS = 100, 1000
SHARE = 0.95
"""Goal: VIR's speed as a share of vanilla's."""
PREVIEW = {64: 572.0, 256: 830.0}
"""Pictures per second of the authors' preview code, with its decoder, on the same GPU."""
TIMES_PREVIEW = 4.0
"""Goal: speed with a decoder as a multiple of the preview code's."""


class Tiny(nn.Module):
    """A network of one layer in place of the ResNet, for a smoke test."""

    feature_dim = 8

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, self.feature_dim, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, H, W, 3) bytes -> (N, 8)"""
        return self.layer(x.permute(0, 3, 1, 2) / 255).relu().mean((2, 3))


class Trainee:
    """A model with its optimiser, its step in one mode, and pictures on the device."""

    def __init__(self, kind: str, mode: str, batch: int, bins: int, options: argparse.Namespace) -> None:
        torch.manual_seed(0)
        self.batch, self.device = batch, torch.device(options.device)
        ages = 101 * np.random.default_rng(0).beta(2, 4, 20_000)
        known = LabelBins.from_labels(ages, edges=np.linspace(0, 101, bins + 1))
        backbone = Tiny() if options.network == "tiny" else make_image_backbone(options.network)
        dim = int(backbone.feature_dim)
        decoder = ImageDecoder(dim) if kind.endswith("decoder") else None
        name = "vanilla" if kind == "vanilla" else "vir"
        self.model = build_model(name, backbone, dim, known, decoder=decoder).to(self.device).train()
        self.config = TrainConfig(
            batch_size=batch,
            precision=options.precision,
            graphs=mode != "eager",
        )
        shape = (batch, options.size, options.size, 3)
        pictures = [torch.randint(256, shape, dtype=torch.uint8, device=self.device) for _ in range(2)]
        labels = torch.as_tensor(ages[: 2 * batch], device=self.device).float().split(batch)
        self.batches = [Batch(x, y) for x, y in zip(pictures, labels, strict=True)]
        self.open = ExitStack()
        self.open.enter_context(fast_kernels(self.config, self.device))
        optimizer = make_optimizer(self.model, self.config, self.device)
        step = TrainingStep(self.model, optimizer, self.config, self.device)
        recorded = self.config.graphs and self.device.type == "cuda"
        self.step: TrainingStep | GraphedStep = GraphedStep(step) if recorded else step
        self.model.begin_epoch(0.0)
        for number in range(WARM + 2):
            self.step(self.batches[number % 2])
            if number == 0:
                self.model.end_epoch()  # from here on rows are recoloured
                self.model.begin_epoch(0.5)
        self.wait()

    def wait(self) -> None:
        """Wait until the device is idle."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def seconds(self, steps: int) -> float:
        """Return the seconds of one step, measured over several."""
        self.wait()
        began = time.perf_counter()
        for number in range(steps):
            self.step(self.batches[number % 2])
        self.wait()
        return (time.perf_counter() - began) / steps

    def close(self) -> None:
        """Leave the settings of this mode."""
        if self.step.failed:
            raise RuntimeError("the loss is not finite")
        self.open.close()


def measure(trainees: dict[str, Trainee], rounds: int, steps: int) -> dict[str, list[float]]:
    """Return the seconds per step of every model in each round; the order rotates."""
    keys, seconds = list(trainees), {key: [] for key in trainees}
    for turn in range(rounds):
        first = turn % len(keys)
        for key in keys[first:] + keys[:first]:
            seconds[key].append(trainees[key].seconds(steps))
    for trainee in trainees.values():
        trainee.close()
    return seconds


def ratio(above: list[float], below: list[float]) -> float:
    """Return the median over rounds of the ratio of two models' times."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda or cpu")
    parser.add_argument("--network", default="resnet50", help="resnet50, resnet18 or tiny")
    parser.add_argument("--size", type=int, default=224, help="height and width of a picture")
    parser.add_argument("--batches", default="64,256", help="comma-separated batch sizes")
    parser.add_argument("--modes", default=",".join(MODES), help="comma-separated modes: eager, graph")
    parser.add_argument("--precision", default="bf16", help="bf16 or fp32")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds")
    parser.add_argument("--pictures", type=int, default=1536, help="pictures per model and round")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes on the CPU, without the goals")
    options = parser.parse_args(arguments)
    if options.smoke:
        small = {"device": "cpu", "network": "tiny", "size": 32, "batches": "4", "modes": "eager"}
        vars(options).update(small, precision="fp32", rounds=1, pictures=8)
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables and return the exit status: 1 if a goal is missed on a GPU."""
    options, began, missed = parse(arguments), time.perf_counter(), []
    device = "cpu" if options.device == "cpu" else torch.cuda.get_device_name()
    print(f"{device}, torch {torch.__version__}, {options.network}, {options.size} px, {options.precision}")
    print("batch  mode      model           pictures/s   ms/step  share", flush=True)
    sizes, modes = [int(size) for size in options.batches.split(",")], options.modes.split(",")
    for batch in sizes:
        steps = max(2, options.pictures // batch)
        for mode in modes:
            trainees = {kind: Trainee(kind, mode, batch, BINS, options) for kind in KINDS}
            seconds = measure(trainees, options.rounds, steps)
            for kind in KINDS:
                middle = statistics.median(seconds[kind])
                share = ratio(seconds["vanilla"], seconds[kind])
                speed = batch / middle
                print(
                    f"{batch:5d}  {mode:8s}  {kind:14s}{speed:12.0f}{1e3 * middle:10.2f}{share:7.3f}", end=""
                )
                print(f"   [{time.perf_counter() - began:.0f} s]", flush=True)
                if mode == modes[-1] and kind == "VIR" and share < SHARE:
                    missed.append(f"VIR at batch {batch}: {share:.3f} of vanilla, goal {SHARE}")
                least = TIMES_PREVIEW * PREVIEW.get(batch, 0.0)
                if mode == modes[-1] and kind == KINDS[2] and speed < least:
                    missed.append(f"{kind} at batch {batch}: {speed:.0f} pictures/s, goal {least:.0f}")
            del trainees
            if options.device == "cuda":
                torch.cuda.empty_cache()
    growth = {str(n): Trainee("VIR", modes[-1], sizes[0], n, options) for n in (BINS, MORE_BINS)}
    seconds = measure(growth, options.rounds, max(2, options.pictures // sizes[0]))
    more = ratio(seconds[str(MORE_BINS)], seconds[str(BINS)]) - 1
    print(f"VIR's step at batch {sizes[0]}, {modes[-1]}: {BINS} to {MORE_BINS} bins {more:+.1%}")
    print(f"{time.perf_counter() - began:.0f} s in all")
    if options.smoke:
        return 0
    for line in missed:
        print(f"MISSED {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
