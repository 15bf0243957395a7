"""Time and memory of a training step on depth maps: 152 x 114 latents of 128 numbers per picture, batch 32.

The network is NYUD2-DIR's (`DepthNet` on a ResNet-50, pictures of 304 x 228). A step is forward, backward,
clipping and optimiser, on random pictures that lie on the device; `graph` is the step as a CUDA graph.
`share` is the speed as a share of
vanilla's in the same mode. Memory is the peak of all tensors, above what lay on the device before.

    python benchmarks/depth_step.py                         # on a GPU, about a minute
    python benchmarks/depth_step.py --smoke                 # on a CPU, seconds: does it run?
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np
import torch

from tailwise.data.depth import EDGES
from tailwise.labels.bins import LabelBins
from tailwise.methods import build_model
from tailwise.networks.backbones.depth import DepthNet, map_size
from tailwise.training.batches import Batch
from tailwise.training.config import TrainConfig, make_optimizer
from tailwise.training.steps import WARM, GraphedStep, TrainingStep, fast_kernels

METHODS = ("vanilla", "lds-fds", "vir")
MODES = ("eager", "graph")
MORE_BINS = 1000


def measure(method: str, mode: str, bins: int, options: argparse.Namespace) -> tuple[float, float]:
    """Return the seconds of a step and the peak of memory in GB."""
    device = torch.device(options.device)
    cuda = device.type == "cuda"
    if cuda:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device) if cuda else 0
    torch.manual_seed(0)
    depths = 0.7 + 9.2 * np.random.default_rng(0).beta(2, 5, 100_000)
    edges = np.linspace(EDGES[0], EDGES[-1], bins + 1)
    network = DepthNet(options.encoder, width=options.width)
    model = build_model(method, network, network.feature_dim, LabelBins.from_labels(depths, edges=edges))
    model.to(device).train()
    config = TrainConfig(
        batch_size=options.batch,
        precision=options.precision,
        graphs=mode != "eager",
    )
    height, width = options.height, options.height * 4 // 3
    x = torch.randint(256, (options.batch, height, width, 3), dtype=torch.uint8, device=device)
    size = (options.batch, *map_size(height, width))
    y = torch.as_tensor(np.random.default_rng(1).choice(depths, size), dtype=torch.float32, device=device)
    with ExitStack() as settings:
        settings.enter_context(fast_kernels(config, device))
        plain = TrainingStep(model, make_optimizer(model, config, device), config, device)
        step = GraphedStep(plain) if config.graphs and cuda else plain
        model.begin_epoch(0.0)
        for number in range(WARM + 2):
            step(Batch(x, y))
            if number == 0:
                model.end_epoch()  # from here on rows are recoloured
                model.begin_epoch(0.5)
        taken = []
        for _ in range(options.steps):
            if cuda:
                torch.cuda.synchronize(device)
            began = time.perf_counter()
            step(Batch(x, y))
            if cuda:
                torch.cuda.synchronize(device)
            taken.append(time.perf_counter() - began)
        if step.failed:
            raise RuntimeError("the loss is not finite")
    peak = torch.cuda.max_memory_allocated(device) - before if cuda else 0
    return statistics.median(taken), peak / 2**30


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda or cpu")
    parser.add_argument("--encoder", default="resnet50", help="resnet50, resnet18 or plain")
    parser.add_argument("--width", type=int, default=64, help="channels of each half of a pixel's features")
    parser.add_argument("--height", type=int, default=228, help="height of a picture; its width is 4/3 of it")
    parser.add_argument("--batch", type=int, default=32, help="pictures per step")
    parser.add_argument("--bins", type=int, default=100, help="number of label bins")
    parser.add_argument("--modes", default=",".join(MODES), help="comma-separated modes: eager, graph")
    parser.add_argument("--precision", default="bf16", help="bf16 or fp32")
    parser.add_argument("--steps", type=int, default=10, help="steps that are timed")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes on the CPU")
    options = parser.parse_args(arguments)
    if options.smoke:
        small = {"device": "cpu", "encoder": "plain", "width": 4, "height": 36, "batch": 2, "steps": 1}
        vars(options).update(small, modes="eager", precision="fp32")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table."""
    options, began = parse(arguments), time.perf_counter()
    device = "cpu" if options.device == "cpu" else torch.cuda.get_device_name()
    height, width = map_size(options.height, options.height * 4 // 3)
    rows = options.batch * height * width
    print(f"{device}, torch {torch.__version__}, {options.encoder}, {options.precision}")
    print(f"batch {options.batch}, maps of {width} x {height}: ", end="")
    print(f"{rows:,} latents of {2 * options.width} numbers in a step")
    print("mode      method        bins   ms/step  pictures/s  share  peak GB", flush=True)
    for mode in options.modes.split(","):
        vanilla = 0.0
        for method, bins in (*((method, options.bins) for method in METHODS), ("vir", MORE_BINS)):
            seconds, peak = measure(method, mode, bins, options)
            vanilla = vanilla or seconds
            print(f"{mode:8s}  {method:12s}{bins:6d}{1e3 * seconds:10.1f}", end="")
            print(f"{options.batch / seconds:12.0f}{vanilla / seconds:7.3f}{peak:9.1f}", end="")
            print(f"   [{time.perf_counter() - began:.0f} s]", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
