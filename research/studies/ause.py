"""Time of AUSE for a million predictions, and of a brute-force loop for comparison.

The loop removes the most uncertain prediction and averages the remaining errors, n times: O(n^2), as in the
authors' preview code. Both are timed on a small case in the same run, and must agree. Times are processor
seconds of one thread, which other work on the machine does not lengthen. Exits with 1 if the two disagree.

    python research/studies/ause.py [--points 1000000] [--small 20000]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from tailwise.distributions.members import Normal
from tailwise.metrics import ause


def predictions(points: int, seed: int = 0) -> tuple[Normal, torch.Tensor]:
    """Generate predictions whose variance is related to the size of their errors."""
    generator = torch.Generator().manual_seed(seed)
    variance = torch.rand(points, generator=generator, dtype=torch.float64) + 0.1
    y = torch.randn(points, generator=generator, dtype=torch.float64) * variance.sqrt()
    return Normal(torch.zeros(points, dtype=torch.float64), variance), y


def brute_force(prediction: Normal, y: torch.Tensor) -> float:
    """Return AUSE by its definition: remove one prediction at a time, average the remaining errors."""
    error = (y - prediction.mean).abs().numpy()
    spread = prediction.std.numpy()

    def curve(key: np.ndarray) -> np.ndarray:
        order = np.argsort(-key, kind="stable")
        return np.array([error[order[removed:]].mean() for removed in range(error.size)])

    gap = (curve(spread) - curve(error)) / error.mean()
    removed = np.arange(error.size) / error.size
    return float(np.sum((gap[1:] + gap[:-1]) / 2 * np.diff(removed)))


def timed(
    function: Callable[[Normal, torch.Tensor], float], case: tuple[Normal, torch.Tensor], repeats: int = 5
) -> tuple[float, float]:
    """Return the result of a function and the shortest of its times."""
    times, result = [], 0.0
    for _ in range(repeats):
        began = time.process_time()
        result = function(*case)
        times.append(time.process_time() - began)
    return result, min(times)


def main() -> int:
    """Measure, print and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--points", type=int, default=1_000_000, help="size of the large case")
    parser.add_argument("--small", type=int, default=20_000, help="size of the case both can do")
    options = parser.parse_args()
    torch.set_num_threads(1)
    small = predictions(options.small)
    ours, fast = timed(ause, small)
    loop, slow = timed(brute_force, small, repeats=1)
    _, large = timed(ause, predictions(options.points))
    agree = abs(ours - loop) < 2 / options.small
    print(f"{options.small} points: tailwise {1e3 * fast:.2f} ms, loop {1e3 * slow:.1f} ms, ", end="")
    print(f"{slow / fast:.0f} times faster; AUSE {ours:.5f} and {loop:.5f} {'PASS' if agree else 'FAIL'}")
    print(f"{options.points} points: tailwise {large:.3f} s")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
