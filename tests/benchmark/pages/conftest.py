"""Made-up runs for pages."""

import numpy as np
import pytest

from tailwise.benchmark.run.region_scores import OF_THE_MEAN, OF_THE_SPREAD
from tailwise.metrics import REGIONS


def make_record(method: str, data: str, seed: int, level: float) -> dict[str, object]:
    """A finished run whose metrics are all `level`."""
    values = dict.fromkeys(OF_THE_MEAN + OF_THE_SPREAD, level)
    metrics = {
        "raw": {r: dict(values) for r in REGIONS},
        "calibrated": {r: dict.fromkeys(OF_THE_SPREAD, level) for r in REGIONS},
    }
    metrics["raw"]["medium"]["mae"] = None  # type: ignore[assignment]  # a region without rows
    return {
        "data": data, "method": method, "title": method.upper(), "seed": seed, "digest": f"{data}{seed}",
        "machine": "test", "recipe": {"trials": 2, "criterion": "balanced_mae", "epochs": 3},
        "rows": {"train": 9, "table": 20}, "features": 3, "bins": 4,
        "test_rows": {"many": 1, "medium": 2, "few": 3}, "seconds": {"fit": 2.0}, "metrics": metrics,
        "options": {"lr": 0.1},
        **({"search": {"lr": [0.1, 0.2]}, "trials": [{}, {}]} if seed == 0 else {}),
    }  # fmt: skip


@pytest.fixture
def records() -> list[dict[str, object]]:
    """Three methods on two data sets with five seeds: OTHER is best, then VIR, then VANILLA."""
    rng = np.random.default_rng(0)
    levels = {"vanilla": 2.0, "vir": 1.0, "other": 0.5}
    return [
        make_record(method, data, seed, level * scale + 0.01 * rng.random())
        for method, level in levels.items()
        for data, scale in (("x", 1.0), ("y", 10.0))
        for seed in range(5)
    ]
