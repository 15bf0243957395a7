"""Checkpoints: a resumed run gives the numbers of an uninterrupted one, or an error says why not."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tailwise.networks.network import Network
from tailwise.networks.vir import PRESETS
from tailwise.training.loop import TensorData, fit, predict
from tests.training.small_models import (
    VALID,
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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", 0.02), ("seed", 1), ("clip_norm", None), ("precision", "bf16"), ("milestones", (1, 2)),
    ],
)  # fmt: skip
def test_a_checkpoint_of_other_settings_is_refused(name: str, value: Any, tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    fit(vir(), (X, Y), VALID, settings(epochs=1), checkpoint=file)
    model = vir()
    before, written = weights(model), file.read_bytes()
    now = re.escape(repr(value))
    with pytest.raises(ValueError, match=rf"trained with {name} = .*, not {now}: ") as error:
        fit(model, (X, Y), VALID, settings(**{name: value}), checkpoint=file)
    assert repr(getattr(settings(), name)) in str(error.value)
    assert_same(weights(model), before)
    assert file.read_bytes() == written


@pytest.mark.parametrize(
    ("options", "changes"), [({}, {"schedule": "cosine"}), ({"schedule": {"start": 0.5}}, {})]
)
def test_epochs_may_change_unless_the_numbers_depend_on_them(
    options: dict[str, Any], changes: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "run.pt"
    fit(vir(**options), (X, Y), None, settings(epochs=2, **changes), checkpoint=file)
    with pytest.raises(ValueError, match=r"trained with epochs = 2, not 3"):
        fit(vir(**options), (X, Y), None, settings(epochs=3, **changes), checkpoint=file)


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


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: vir(bins=other_bins(-0.5, 9)), "bins = 10 from -0.5 to 9.5, not 9 from"),
        (lambda: vir(bins=other_bins(-0.4)), "bins = 10 from -0.5 to 9.5, not 10 from -0.4"),
        (lambda: vir(bins=other_bins(-0.5, rows=40)), "training labels per bin = "),
        (lambda: vir(**{"kl.weight": 0.5}), f"method kl.weight = {KL}, not 0.5"),
        (lambda: vir(smoothing={"radius": 3}), "method smoothing.radius = 2, not 3"),
        (lambda: vir(hidden=6), "was trained with another network"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(
    other: Callable[[], Network], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "run.pt"
    fit(vir(), (X, Y), None, settings(epochs=1), checkpoint=file)
    with pytest.raises(ValueError, match=r"run\.pt was trained with") as error:
        fit(other(), (X, Y), None, settings(), checkpoint=file)
    assert message in str(error.value)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("part", ["an input", "a label", "a weight", "an offset", "a validation label"])
def test_a_checkpoint_of_other_data_of_the_same_size_is_refused(part: str, tmp_path: Path) -> None:
    file, weight, offset = tmp_path / "run.pt", torch.ones(len(Y)), Y + 1
    whole = TensorData(*VALID, offset=Y_VALID)
    fit(vir(offset=True), (X, Y, weight, offset), whole, settings(epochs=1), checkpoint=file)
    x, y, valid = X.clone(), Y.clone(), TensorData(VALID[0], VALID[1].clone(), offset=Y_VALID)
    if part == "an input":
        x[3, 0] += 1e-6
    elif part == "a label":
        y[3] += 1e-4  # stays in its bin
    elif part == "a weight":
        weight[3] = 2.0
    elif part == "an offset":
        offset = offset + 1e-3
    else:
        valid.y[0] += 0.5
    with pytest.raises(ValueError, match=r"run\.pt was trained with (training|validation) data = ") as error:
        fit(vir(offset=True), (x, y, weight, offset), valid, settings(epochs=2), checkpoint=file)
    assert "delete it to start over" in str(error.value)
    same = (X, Y, torch.ones(len(Y)), Y + 1)
    again = fit(vir(offset=True), same, whole, settings(epochs=2), checkpoint=file)
    assert len(again.history) == 2


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
