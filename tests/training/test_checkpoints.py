"""Checkpoints: a resumed run gives the numbers of an uninterrupted one, or an error says why not."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tailwise.networks.network import Network
from tailwise.networks.vir import PRESETS
from tailwise.training.loop import FitResult, TensorData, fit, predict
from tests.training.small_models import (
    VALID,
    X_VALID,
    Y_VALID,
    X,
    Y,
    assert_same,
    figures,
    on_forward,
    other_bins,
    settings,
    vir,
    weights,
)

KL = PRESETS["default"].as_options()["kl.weight"]
WEIGHT = torch.ones(len(Y))
KINDS = {"streaming": lambda: vir(), "no smoothing": lambda: vir(smoothing=None)}


loaders: dict[str, Callable[[], Any]] = {
    "tensors": lambda: (X, Y),
    "loader": lambda: DataLoader(TensorDataset(X, Y), 32, shuffle=True),
}


@pytest.mark.parametrize(
    ("kind", "data", "stop"),
    [("streaming", "tensors", 2), ("streaming", "loader", 1), ("no smoothing", "loader", 2)],
)
def test_a_resumed_run_ends_as_if_never_interrupted(kind: str, data: str, stop: int, tmp_path: Path) -> None:
    whole = KINDS[kind]()
    expected = fit(whole, loaders[data](), VALID, settings(epochs=3, lr=0.05))
    file = tmp_path / "run.pt"
    fit(KINDS[kind](), loaders[data](), VALID, settings(epochs=stop, lr=0.05), checkpoint=file)
    resumed = KINDS[kind]()
    torch.rand(5)
    result = fit(resumed, loaders[data](), VALID, settings(epochs=3, lr=0.05), checkpoint=file)
    assert figures(result) == figures(expected)
    assert_same(weights(resumed), weights(whole))
    assert len(result.history) == 3


def changed(values: Tensor, by: float) -> Tensor:
    """The values with another one in row 3."""
    other = values.clone()
    other[3] += by
    return other


def run(
    file: Path,
    *,
    x: Tensor = X,
    y: Tensor = Y,
    weight: Tensor = WEIGHT,
    base: Tensor = Y + 1,
    y_valid: Tensor = Y_VALID,
    model: Mapping[str, Any] = {},
    **options: Any,
) -> tuple[Network, FitResult]:
    """Train an epoch, or more, around a base, with a checkpoint."""
    network = vir(offset=True, **model)
    valid = TensorData(X_VALID, y_valid, offset=Y_VALID)
    config = settings(**{"epochs": 1, **options})
    return network, fit(network, (x, y, weight, base), valid, config, checkpoint=file)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": 0.02}, "lr = 0.01, not 0.02: resume with the same data and settings"),
        ({"clip_norm": None}, "clip_norm = 5.0, not None"),
        ({"milestones": (1, 2)}, r"milestones = (60, 90), not (1, 2)"),
        ({"model": {"bins": other_bins(-0.5, 9)}}, "bins = 10 from -0.5 to 9.5, not 9 from"),
        ({"model": {"bins": other_bins(-0.4)}}, "bins = 10 from -0.5 to 9.5, not 10 from -0.4"),
        ({"model": {"bins": other_bins(-0.5, rows=40)}}, "training labels per bin = "),
        ({"model": {"kl.weight": 0.5}}, f"method kl.weight = {KL}, not 0.5"),
        ({"model": {"smoothing": {"radius": 3}}}, "method smoothing.radius = 2, not 3"),
        ({"model": {"hidden": 6}}, "another network"),
        ({"x": changed(X, 1e-6)}, "training data = "),
        ({"y": changed(Y, 1e-4)}, "training data = "),  # stays in its bin
        ({"weight": changed(WEIGHT, 1.0)}, "training data = "),
        ({"base": changed(Y + 1, 1e-3)}, "training data = "),
        ({"y_valid": changed(Y_VALID, 0.5)}, "validation data = "),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    run(file)
    written = file.read_bytes()
    with pytest.raises(ValueError, match=rf"run\.pt was trained with {re.escape(message)}") as error:
        run(file, **change)
    assert file.read_bytes() == written and len(str(error.value)) < 500


def test_epochs_may_change_unless_the_numbers_depend_on_them(tmp_path: Path) -> None:
    for number, change in enumerate([{"schedule": "cosine"}, {"model": {"schedule": {"start": 0.5}}}]):
        run(tmp_path / f"{number}.pt", **change)
        with pytest.raises(ValueError, match=r"trained with epochs = 1, not 2"):
            run(tmp_path / f"{number}.pt", epochs=2, **change)
    run(tmp_path / "run.pt")
    assert len(run(tmp_path / "run.pt", epochs=2)[1].history) == 2


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_run_of_two_stages_resumes_in_either(epoch: int, tmp_path: Path) -> None:
    """The second stage draws a new head, at the start of its first epoch."""
    whole, model, resumed = (vir(**{"schedule.start": 0.5}) for _ in range(3))
    expected = fit(whole, (X, Y), VALID, settings(epochs=4))
    file, calls = tmp_path / "run.pt", Counter[bool]()

    def break_off(module: nn.Module) -> None:
        calls[module.training] += 1
        if calls[True] == 3 * epoch + 2:
            raise KeyboardInterrupt

    on_forward(model, break_off)
    with pytest.raises(KeyboardInterrupt):
        fit(model, (X, Y), VALID, settings(epochs=4), checkpoint=file)
    torch.rand(3)
    result = fit(resumed, (X, Y), VALID, settings(epochs=4), checkpoint=file)
    assert figures(result) == figures(expected)
    assert_same(weights(resumed), weights(whole))
    assert result.best_epoch >= 3


@pytest.mark.parametrize("damage", ["truncated", "foreign", "pickle"])
def test_a_file_that_is_no_checkpoint_is_refused(damage: str, tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    fit(vir(), (X, Y), None, settings(epochs=1), checkpoint=file)
    whole = file.read_bytes()
    if damage == "foreign":
        torch.save({"model": torch.zeros(2)}, file)
    else:
        pickled = pickle.dumps(Path("/"))  # code that a checkpoint must not run
        file.write_bytes(pickled if damage == "pickle" else whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"run\.pt is not a tailwise checkpoint .*; delete it or name"):
        fit(vir(), (X, Y), None, settings(), checkpoint=file)


def test_a_checkpoint_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "deep" / "er" / "run.pt"
    fit(vir(), (X, Y), None, settings(epochs=1), checkpoint=file)
    whole = file.read_bytes()

    def full_disk(path: Path, content: bytes) -> None:
        with path.open("wb") as part:
            part.write(content[:4])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full_disk)
        with pytest.raises(OSError, match=r"No space left on device: '.*run\.pt'"):
            fit(vir(), (X, Y), None, settings(), checkpoint=file)
    assert file.read_bytes() == whole
    assert list(file.parent.iterdir()) == [file]
    fit(vir(), (X, Y), None, settings(), checkpoint=file)
    assert torch.load(file, weights_only=True)["epoch"] == 3
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_gpu_resumes_and_leaves_the_caller_s_random_state_alone(precision: str, tmp_path: Path) -> None:
    whole, resumed, file = vir(), vir(), tmp_path / "run.pt"
    before = torch.cuda.get_rng_state()
    changes = {"accelerator": "cuda", "precision": precision}
    expected = fit(whole, (X, Y), VALID, settings(epochs=4, **changes))
    fit(vir(), (X, Y), VALID, settings(epochs=2, **changes), checkpoint=file)
    result = fit(resumed, (X, Y), VALID, settings(epochs=4, **changes), checkpoint=file)
    assert torch.equal(torch.cuda.get_rng_state(), before)
    losses = [[row["loss"] for row in run.history] for run in (result, expected)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    torch.testing.assert_close(predict(resumed, X).mean, predict(whole, X).mean, rtol=1e-2, atol=1e-2)
