"""Less training where a text or a script is only to run."""

import os
from pathlib import Path
from typing import Any

import pytest

from tailwise.model import base as bases
from tailwise.model import settings
from tailwise.training.config import TrainConfig

ROOT = Path(__file__).parents[2]
TREES, EPOCHS = 50, 3
SHORT = f"""
from tailwise.model import base as bases, settings
from tailwise.training.config import TrainConfig

bases.TREES = {TREES}
settings.TrainConfig = lambda epochs, **others: TrainConfig(epochs=min(epochs, {EPOCHS}), **others)
"""


@pytest.fixture
def short_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few trees and epochs for `TailRegressor`: what runs here is measured elsewhere."""

    def short_config(epochs: int, **others: Any) -> TrainConfig:
        return TrainConfig(epochs=min(epochs, EPOCHS), **others)

    monkeypatch.setattr(bases, "TREES", TREES)
    monkeypatch.setattr(settings, "TrainConfig", short_config)


@pytest.fixture
def short_processes(tmp_path: Path) -> dict[str, str]:
    """The environment of processes that train as shortly: Python runs `sitecustomize` when it starts."""
    (tmp_path / "sitecustomize.py").write_text(SHORT)
    path = filter(None, [str(tmp_path), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}
