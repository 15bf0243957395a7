"""Effect of batches by length, bf16 and an even width on a training step of the BiLSTM on STS-B-DIR.

Every variant trains VIR (or vanilla) for one pass over the training pairs after a short warm-up. A step is
forward, backward and optimiser. Random batches are padded to 40 words, as is usual. Tokens are words without
padding. The share of peak counts the floating-point operations of the LSTMs only, for all computed positions,
relative to the GPU's peak in bf16 (`--peak`, TFLOP/s).

    tailwise bench prepare --suite stsb-paper --seeds 1 --out PREPARED
    python benchmarks/sentence_steps.py PREPARED [--device cuda] [--hidden 1504]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional as F

from tailwise.benchmark.data.problems import Problem
from tailwise.methods import build_model
from tailwise.networks.backbones import BiLSTMPair
from tailwise.training.batches import TensorData, batches

PADDED = 40


def measure(
    problem: Problem, *, method: str, hidden: int, bf16: bool, bucketed: bool, size: int, device: torch.device
) -> tuple[float, float, float, float, float]:
    """Return seconds per step, positions per row, tokens per second, TFLOP/s and peak GiB of one pass."""
    torch.manual_seed(0)
    net = BiLSTMPair(problem.extra["vectors"], hidden=hidden)
    model = build_model(method, net, net.feature_dim, problem.bins).to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), 1e-5, fused=device.type == "cuda")
    x, y = torch.from_numpy(problem.x_train), torch.from_numpy(problem.y_train)
    x = F.pad(x, (0, max(0, PADDED - x.shape[-1])))
    lengths = model.row_lengths(x) if bucketed else None
    data = TensorData(x, y, lengths=lengths).to(device)
    recurrent = sum(p.numel() for name, p in net.layers.named_parameters() if "weight" in name)

    def one_pass(seed: int, steps: int | None = None) -> tuple[int, int]:
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
        count, positions = 0, 0
        for batch in batches(data, size, device, order, seed):
            if steps is not None and count >= steps:
                break
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                loss, _ = model.loss(batch.x, batch.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            count, positions = count + 1, positions + batch.x.numel()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return count, positions

    one_pass(0, steps=5)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    began = time.perf_counter()
    steps, positions = one_pass(1)
    seconds = time.perf_counter() - began
    peak = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else float("nan")
    tokens = int((problem.x_train != 0).sum())
    flops = 3 * 2 * recurrent * positions
    return seconds / steps, positions / (2 * len(y)), tokens / seconds, flops / seconds / 1e12, peak


def main() -> int:
    """Print one line per variant, and the speed-up from the first to the last of vanilla."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--hidden", type=int, default=1504, help="width of the last variants")
    parser.add_argument(
        "--peak", type=float, default=989.4, help="TFLOP/s of the device in dense bf16; an H200's by default"
    )
    args = parser.parse_args()
    device, problem = torch.device(args.device), Problem.load(args.prepared, "stsb", 0)
    narrow = args.hidden - 4
    say = sys.stdout.write
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    say(f"{name}, torch {torch.__version__}; peak in dense bf16 {args.peak:.0f} TFLOP/s\n")
    say("method   batch width  bf16  by length  ms/step  positions/row  tokens/s  TFLOP/s  of peak  GiB\n")
    times = []
    for method, size, hidden, bf16, bucketed in (
        ("vanilla", 128, narrow, False, False),
        ("vanilla", 128, narrow, True, False),
        ("vanilla", 128, narrow, True, True),
        ("vanilla", 128, args.hidden, True, True),
        ("vanilla", 256, args.hidden, True, True),
        ("vir", 256, args.hidden, True, True),
    ):
        options = {"method": method, "hidden": hidden, "bf16": bf16, "bucketed": bucketed, "size": size}
        step, positions, tokens, tflops, memory = measure(problem, device=device, **options)  # type: ignore[arg-type]
        times.append(step / size)
        say(
            f"{method:8s} {size:5d} {hidden:5d} {bf16!s:>5s} {bucketed!s:>10s} {1e3 * step:8.1f} "
            f"{positions:14.1f} {tokens:9.0f} {tflops:8.1f} {tflops / args.peak:8.0%} {memory:4.1f}\n"
        )
    say(f"a pair takes {times[0] / times[-2]:.1f} times as long with the first as with the last of vanilla\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
