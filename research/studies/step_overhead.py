"""Time of a training step with VIR and without, for different numbers of label bins.

A step is forward, backward, clipping and optimiser. In each round all models are timed in turn, in a rotating
order, and ratios are taken within rounds, so that a busy machine slows both sides equally.

    python research/studies/step_overhead.py
    python research/studies/step_overhead.py --device cuda --network resnet50 --graphs --rounds 15

A ResNet gets batches of 64 pictures of 224 x 224, in bfloat16.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from tailwise.labels.bins import LabelBins
from tailwise.methods import build_model
from tailwise.networks.backbones import MLP
from tailwise.networks.images import make_image_backbone
from tailwise.training.batches import Batch
from tailwise.training.config import TrainConfig
from tailwise.training.steps import GraphedStep, Optimizer, TrainingStep, fast_kernels

BINS = (10, 100, 1000)
INPUTS, HIDDEN, BATCH, ROWS = 64, (256, 128), 256, 16_384
PICTURES, SIZE = 64, 224
MAX_GROWTH = 1.10
Key = tuple[str, int]


class Trainee:
    """A model with its step and data, all on the device."""

    def __init__(self, method: str, count: int, options: argparse.Namespace, config: TrainConfig) -> None:
        torch.manual_seed(0)
        self.device = torch.device(options.device)
        labels = torch.rand(ROWS, dtype=torch.float64) ** 2
        if options.network == "mlp":
            backbone, width, size = MLP(INPUTS, HIDDEN), HIDDEN[-1], BATCH
            x = torch.randn(ROWS, INPUTS)
        else:
            backbone, size = make_image_backbone(options.network), PICTURES
            width = int(backbone.feature_dim)
            x = torch.randint(256, (2 * PICTURES, SIZE, SIZE, 3), dtype=torch.uint8)
        parts = zip(x.to(self.device).split(size), labels.float().to(self.device).split(size), strict=False)
        self.batches = [Batch(*part) for part in parts]
        bins = LabelBins.from_labels(labels, count=count)
        self.model = build_model(method, backbone, width, bins).to(self.device).train()
        kind = GraphedStep if config.graphs else TrainingStep
        self.step = kind(self.model, Optimizer(self.model, config, self.device), config, self.device)
        self.model.begin_epoch(0.0)
        self.seconds(10)
        self.end_epoch()  # from here on rows are recoloured
        self.step.begin(changed=self.model.begin_epoch(0.5))
        self.seconds(10)

    def wait(self) -> float:
        """Wait until the device is idle; return the time."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def seconds(self, steps: int) -> float:
        """Return the seconds of a step, measured over several."""
        began = self.wait()
        for number in range(steps):
            self.step([(0, self.batches[number % len(self.batches)])])
        return (self.wait() - began) / steps

    def end_epoch(self) -> float:
        """End the epoch, which updates the latent statistics, and return its seconds."""
        began = self.wait()
        self.model.end_epoch()
        return self.wait() - began


def ratio(above: list[float], below: list[float]) -> tuple[float, float, float]:
    """Return the median over rounds of the ratio of two models' times, and its quartiles."""
    low, middle, high = statistics.quantiles((a / b for a, b in zip(above, below, strict=True)), n=4)
    return middle, low, high


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--network", default="mlp", help="mlp, resnet18 or resnet50")
    parser.add_argument("--graphs", action="store_true", help="record the step as a CUDA graph")
    parser.add_argument("--rounds", type=int, default=50, help="number of rounds, of ten steps each")
    options = parser.parse_args()
    precision = "fp32" if options.network == "mlp" else "bf16"
    config = TrainConfig(precision=precision, graphs=options.graphs)
    with fast_kernels(config, torch.device(options.device)):
        keys = [(method, count) for count in BINS for method in ("vanilla", "vir")]
        models = {key: Trainee(*key, options, config) for key in keys}
        seconds: dict[Key, list[float]] = {key: [] for key in keys}
        for number in range(options.rounds):
            turn = number % len(keys)
            for key in keys[turn:] + keys[:turn]:
                seconds[key].append(models[key].seconds(10))
        ends = {key: model.end_epoch() for key, model in models.items()}

    device = torch.cuda.get_device_name() if options.device == "cuda" else options.device
    print(f"{device}, torch {torch.__version__}; {options.network}, {precision}, graphs: {options.graphs}")
    print("  bins  vanilla ms    VIR ms   vanilla / VIR (quartiles)   epoch's end ms")
    for count in BINS:
        vanilla, vir = seconds["vanilla", count], seconds["vir", count]
        times = 1e3 * statistics.median(vanilla), 1e3 * statistics.median(vir)
        share, low, high = ratio(vanilla, vir)
        print(f"{count:6d}{times[0]:12.3f}{times[1]:10.3f}{share:12.3f} ({low:.3f} to {high:.3f})", end="")
        print(f"{1e3 * ends['vir', count]:15.3f}")
    growth = ratio(seconds["vir", BINS[-1]], seconds["vir", BINS[0]])[0]
    print(f"VIR's step from {BINS[0]} to {BINS[-1]} bins: {growth - 1:+.1%} (limit {MAX_GROWTH - 1:+.0%})")


if __name__ == "__main__":
    main()
