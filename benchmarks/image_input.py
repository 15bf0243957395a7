"""Pictures per second of the input pipeline, and the share of a training step that waits for pictures.

`decode` is from JPEG files in a zip archive to bytes in the cache, on some threads; it happens once.
`batches` gathers rows of the mapped file in memory that the device copies from, copies and augments them.
`training` is the training loop's own steps with pictures that stay in the computer's memory; `waiting` is how
much longer they take than the same steps on a batch that is on the device already. Figures are medians of the
rounds.

    python benchmarks/image_input.py                        # on a GPU, about two minutes
    python benchmarks/image_input.py --cores 2
    python benchmarks/image_input.py --smoke                # on a CPU, seconds: does it run?
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from tailwise.images import decode_pictures, make_augmentation
from tailwise.labels.bins import LabelBins
from tailwise.methods import build_model
from tailwise.networks.backbones.images import Pixels, make_image_backbone
from tailwise.training import batches as batching
from tailwise.training.batches import Batch, TensorData, batches
from tailwise.training.config import TrainConfig, make_optimizer
from tailwise.training.steps import GraphedStep, TrainingStep, fast_kernels


def archive_of(folder: Path, pictures: int, size: int) -> tuple[Path, list[str]]:
    """Write JPEG pictures of a few shapes and much noise, as faces compress; return archive and names."""
    rng, names = np.random.default_rng(0), [f"{i}.jpg" for i in range(pictures)]
    kinds = []
    for _ in range(16):
        coarse = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        smooth = np.asarray(Image.fromarray(coarse).resize((size, size)), np.int16)
        noisy = smooth + rng.normal(0, 8, smooth.shape).astype(np.int16)
        out = io.BytesIO()
        Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(out, format="JPEG", quality=90)
        kinds.append(out.getvalue())
    path = folder / "pictures.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number, name in enumerate(names):
            archive.writestr(name, kinds[number % len(kinds)])
    return path, names


def decoding_speed(options: argparse.Namespace, folder: Path) -> tuple[float, Tensor]:
    """Return pictures per second of decoding, and the decoded pictures as they are mapped."""
    path, names = archive_of(folder, options.pictures, options.file_size)
    speeds = []
    for turn in range(options.rounds):
        began = time.perf_counter()
        found = decode_pictures(
            names, path, size=options.size, cache=folder / str(turn), threads=options.cores, progress=False
        )
        speeds.append(len(names) / (time.perf_counter() - began))
    return statistics.median(speeds), torch.from_numpy(found.pixels)


def streamed(x: Tensor, labels: Tensor, options: argparse.Namespace) -> Iterator[Batch]:
    """Yield batches of pictures that stay in the computer's memory, in random order."""
    device = torch.device(options.device)
    data = TensorData(x, labels, transform=make_augmentation("crop-flip")).to(device)
    if device.type == "cuda" and not data.streams:
        raise RuntimeError("the pictures moved to the device: there is nothing to measure")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    return batches(data, options.batch, device, order)


def synchronize(options: argparse.Namespace) -> None:
    """Wait until the device has done its work."""
    if options.device == "cuda":
        torch.cuda.synchronize()


def batch_speed(x: Tensor, labels: Tensor, options: argparse.Namespace) -> float:
    """Return pictures per second of gathering, copying and augmenting, without training."""
    speeds = []
    for _ in range(options.rounds):
        synchronize(options)
        began = time.perf_counter()
        for batch in streamed(x, labels, options):
            assert len(batch.y)
        synchronize(options)
        speeds.append(len(labels) / (time.perf_counter() - began))
    return statistics.median(speeds)


def network_of(name: str) -> tuple[nn.Module, int]:
    """Return a network and the size of its features; `tiny` is one layer, for a smoke test."""
    if name == "tiny":
        layers = (Pixels(), nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return nn.Sequential(*layers), 8
    network = make_image_backbone(name)
    return network, network.feature_dim


def training_speeds(x: Tensor, labels: Tensor, options: argparse.Namespace) -> tuple[float, float]:
    """Return pictures per second of training on streamed batches, and on one batch on the device."""
    torch.manual_seed(0)
    device = torch.device(options.device)
    backbone, dim = network_of(options.network)
    model = build_model("vir", backbone, dim, LabelBins.from_labels(labels)).to(device).train()
    config = TrainConfig(
        batch_size=options.batch, precision=options.precision, graphs=options.device == "cuda"
    )
    with fast_kernels(config, device):
        step = TrainingStep(model, make_optimizer(model, config, device), config, device)
        run = GraphedStep(step) if config.graphs else step
        warm = list(streamed(x, labels, options))
        first = warm[0]
        for batch in warm[:8]:
            run(batch)
        found: dict[str, list[float]] = {"streamed": [], "there": []}
        for _ in range(options.rounds):
            for kind in found:
                synchronize(options)
                began, rows = time.perf_counter(), 0
                for batch in streamed(x, labels, options) if kind == "streamed" else [first] * len(warm):
                    run(batch)
                    rows += len(batch.y)
                synchronize(options)
                found[kind].append(rows / (time.perf_counter() - began))
    return statistics.median(found["streamed"]), statistics.median(found["there"])


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the settings of a run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="threads of the computer")
    parser.add_argument("--network", default="resnet50")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--pictures", type=int, default=8192)
    parser.add_argument("--file-size", type=int, default=256, help="height and width of the files")
    parser.add_argument("--size", type=int, default=224, help="height and width that are trained on")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--smoke", action="store_true", help="small, on a CPU")
    options = parser.parse_args(arguments)
    if options.smoke:
        options.device, options.network, options.precision = "cpu", "tiny", "fp32"
        options.pictures, options.file_size, options.size, options.batch, options.rounds = 64, 24, 16, 16, 1
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    if hasattr(os, "sched_setaffinity"):
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, sorted(before)[: options.cores])
    threads = torch.get_num_threads()
    torch.set_num_threads(options.cores)
    share, batching.DEVICE_SHARE = batching.DEVICE_SHARE, 0.0  # pictures must not move to the device
    try:
        with tempfile.TemporaryDirectory() as folder:
            decoded, x = decoding_speed(options, Path(folder))
            ages = 101 * np.random.default_rng(0).beta(2, 4, len(x))
            labels = torch.from_numpy(np.round(ages))
            gathered = batch_speed(x, labels, options)
            streaming, there = training_speeds(x, labels, options)
    finally:
        batching.DEVICE_SHARE = share
        torch.set_num_threads(threads)
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, before)
    where = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    print(f"{where}, {options.cores} cores, torch {torch.__version__}; {options.pictures} pictures of "
          f"{options.size} x {options.size}, batches of {options.batch}")  # fmt: skip
    print(f"decode     {decoded:10,.0f} pictures per second, once (JPEG, {options.file_size} pixels high)")
    print(f"batches    {gathered:10,.0f} pictures per second, gathered, copied and augmented")
    print(f"training   {streaming:10,.0f} pictures per second ({options.network}, VIR, {options.precision})")
    print(f"           {there:10,.0f} on a batch that is on the device already")
    print(f"waiting    {max(0.0, 1 - streaming / there):10.1%} of the time of a step")
    return 0


if __name__ == "__main__":
    sys.exit(main())
