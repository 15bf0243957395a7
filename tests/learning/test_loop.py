"""The training loop: reproducible, resumable, guarded, the same whatever form the data comes in.

Runs are tiny and on the CPU, where "the same" means equal to the last bit.
"""

from __future__ import annotations

import io
import logging
import math
import os
import pickle
import re
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from tailwise.core.labels import LabelBins
from tailwise.learning import loop as training
from tailwise.learning.loop import (
    FitResult,
    NonFiniteLossError,
    TensorData,
    TrainConfig,
    fit,
    learning_rate,
    predict,
    write_atomically,
)
from tailwise.methods import build_model
from tailwise.metrics import get_metric
from tailwise.networks.backbones import MLP
from tailwise.networks.model import VIR, Method, TailModel
from tailwise.networks.parts import PRESETS
from tailwise.networks.smoothing import bin_statistics

ROWS, INPUTS = 90, 5


def table(rows: int = ROWS, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs and skewed whole-number labels from 0 to 9 that depend on them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, INPUTS, generator=generator)
    y = (2 * (x[:, 0] + 0.3 * x[:, 1]).exp()).round().clamp(0, 9)
    return x, y


X, Y = table()
X_VALID, Y_VALID = table(60, seed=1)
VALID = (X_VALID, Y_VALID)
BINS = LabelBins.from_labels(Y, edges=np.arange(11) - 0.5)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Networks as small as these run fastest on one thread, above all on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def other_bins(low: float, count: int = 10, rows: int = ROWS) -> LabelBins:
    """Unit bins from a lowest edge on."""
    return LabelBins.from_labels(Y[:rows], edges=low + np.arange(count + 1))


def vir(*, dropout: float = 0.2, bins: LabelBins = BINS, hidden: int = 8, **options: Any) -> VIR:
    """A small VIR whose first weights are always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return VIR(MLP(INPUTS, (16, hidden), dropout), hidden, bins, **options)


def point(backbone: Callable[[], nn.Module] = lambda: MLP(INPUTS, (16, 8), 0.0)) -> TailModel:
    """The same network with a point head and nothing random in it."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return TailModel(backbone(), 8, BINS, Method())


def normalised() -> nn.Module:
    """A backbone that keeps running statistics."""
    return nn.Sequential(nn.Linear(INPUTS, 8), nn.BatchNorm1d(8), nn.ReLU())


def settings(**changes: Any) -> TrainConfig:
    """Three epochs of three steps on the CPU, unless changed."""
    return TrainConfig(**{"epochs": 3, "batch_size": 32, "lr": 0.01, "accelerator": "cpu", **changes})


def weights(model: nn.Module) -> dict[str, Tensor]:
    """A copy of all parameters and buffers."""
    return {name: value.clone() for name, value in model.state_dict().items()}


def assert_same(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    """Equal to the last bit."""
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def differ(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return any(not torch.equal(a[name], b[name]) for name in a)


def figures(result: FitResult) -> dict[str, Any]:
    """All of a result but the clock."""
    history = [{k: v for k, v in row.items() if k != "seconds"} for row in result.history]
    return {**vars(result), "history": history}


def on_forward(model: TailModel, action: Callable[[nn.Module], None]) -> Any:
    """Call an action before each pass through the backbone; returns the handle that removes it."""
    return model.backbone.register_forward_pre_hook(lambda module, _: action(module))


# -- seeds ---------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bits_and_another_seed_does_not() -> None:
    runs = []
    for seed in (3, 3, 4):
        model = vir()
        torch.rand(len(runs) + 1)  # what the caller drew before has no influence
        runs.append((figures(fit(model, (X, Y), VALID, settings(seed=seed))), weights(model)))
    assert runs[0][0] == runs[1][0]
    assert_same(runs[0][1], runs[1][1])
    assert runs[0][0] != runs[2][0]
    assert differ(runs[0][1], runs[2][1])


def test_a_shuffling_loader_is_seeded_too() -> None:
    runs = []
    for _ in range(2):
        model = vir()
        torch.rand(len(runs) + 1)
        fit(model, DataLoader(TensorDataset(X, Y), 32, shuffle=True), VALID, settings())
        runs.append(weights(model))
    assert_same(*runs)


def test_epochs_differ_in_order_and_dropout() -> None:
    orders: list[tuple[int, ...]] = []
    model = point()
    handle = model.backbone.register_forward_pre_hook(
        lambda _, args: orders.append(tuple(args[0][:, 0].argsort().tolist()))
    )
    fit(model, (X, Y), None, settings(batch_size=ROWS))
    handle.remove()
    assert len(set(orders)) == 3


def test_the_random_state_of_the_caller_is_left_alone() -> None:
    torch.manual_seed(11)
    np.random.seed(11)  # noqa: NPY002 - the caller's global state is what is tested
    before, before_numpy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    fit(vir(), (X, Y), VALID, settings(epochs=1))
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], before_numpy)  # noqa: NPY002


# -- checkpoints ---------------------------------------------------------------------------------

KINDS = {
    "streaming": lambda: vir(),
    "exact": lambda: vir(smoothing={"exact": True}),
    "no smoothing": lambda: vir(smoothing=None),
}
loaders: dict[str, Callable[[], Any]] = {
    "tensors": lambda: (X, Y),
    "loader": lambda: DataLoader(TensorDataset(X, Y), 32, shuffle=True),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("data", loaders)
@pytest.mark.parametrize("stop", [1, 3])
def test_a_resumed_run_ends_as_if_never_interrupted(kind: str, data: str, stop: int, tmp_path: Path) -> None:
    whole = KINDS[kind]()
    expected = fit(whole, loaders[data](), VALID, settings(epochs=5, lr=0.05))
    file = tmp_path / "run.pt"
    fit(KINDS[kind](), loaders[data](), VALID, settings(epochs=stop, lr=0.05), checkpoint=file)
    resumed = KINDS[kind]()
    torch.rand(5)
    result = fit(resumed, loaders[data](), VALID, settings(epochs=5, lr=0.05), checkpoint=file)
    assert figures(result) == figures(expected)
    assert_same(weights(resumed), weights(whole))
    assert len(result.history) == 5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fresh", [True, False], ids=["new model", "same model"])
@pytest.mark.parametrize("where", ["training", "validation"])
def test_a_run_that_broke_off_in_an_epoch_resumes(kind: str, fresh: bool, where: str, tmp_path: Path) -> None:
    whole = KINDS[kind]()
    expected = fit(whole, (X, Y), VALID, settings(epochs=4))
    model, file, calls = KINDS[kind](), tmp_path / "run.pt", Counter[bool]()

    def break_off(module: nn.Module) -> None:
        calls[module.training] += 1
        if calls[True] == 8 if where == "training" else calls[True] == 9 and not module.training:
            raise KeyboardInterrupt

    handle = on_forward(model, break_off)
    with pytest.raises(KeyboardInterrupt):
        fit(model, (X, Y), VALID, settings(epochs=4), checkpoint=file)
    handle.remove()
    model = KINDS[kind]() if fresh else model
    result = fit(model, (X, Y), VALID, settings(epochs=4), checkpoint=file)
    assert figures(result) == figures(expected)
    assert_same(weights(model), weights(whole))


def test_resuming_keeps_the_best_epoch_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter([3.0, 1.0, 2.0, 4.0])
    monkeypatch.setattr(training._Loop, "_validate", lambda self: next(scores))
    file = tmp_path / "run.pt"
    fit(vir(), (X, Y), VALID, settings(epochs=3), checkpoint=file)
    model = vir()
    result = fit(model, (X, Y), VALID, settings(epochs=4), checkpoint=file)
    assert (result.best_epoch, result.best_score) == (2, 1.0)
    second = vir()
    fit(second, (X, Y), None, settings(epochs=2))
    assert_same(weights(model), weights(second))


def test_a_finished_run_is_only_loaded(tmp_path: Path) -> None:
    file, model, again = tmp_path / "run.pt", vir(), vir()
    first = fit(model, (X, Y), VALID, settings(), checkpoint=file)
    steps: list[bool] = []
    handle = on_forward(again, lambda module: steps.append(module.training))
    second = fit(again, (X, Y), VALID, settings(), checkpoint=file)
    handle.remove()
    assert not steps
    assert figures(first) == figures(second)
    assert_same(weights(model), weights(again))


def test_more_patience_continues_a_run_that_stopped_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([1.0, 2.0, 2.0, 0.5, 2.0])
    monkeypatch.setattr(training._Loop, "_validate", lambda self: next(scores))
    file = tmp_path / "run.pt"
    first = fit(vir(), (X, Y), VALID, settings(epochs=5, patience=2), checkpoint=file)
    assert first.stopped_early
    assert len(first.history) == 3
    second = fit(vir(), (X, Y), VALID, settings(epochs=5, patience=3), checkpoint=file)
    assert (second.stopped_early, len(second.history), second.best_epoch) == (False, 5, 4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", 0.02), ("batch_size", 30), ("seed", 1), ("optimizer", "sgd"), ("monitor", "mae"),
        ("schedule", "step"), ("clip_norm", None), ("precision", "bf16"), ("weight_decay", 0.0),
        ("restore_best", False), ("milestones", (1, 2)), ("warmup", 1.0),
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


@pytest.mark.parametrize(("options", "changes"), [({}, {"schedule": "cosine"}), ({"retrain_from": 0.5}, {})])
def test_epochs_may_change_unless_the_numbers_depend_on_them(
    options: dict[str, Any], changes: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "run.pt"
    fit(vir(**options), (X, Y), None, settings(epochs=2, **changes), checkpoint=file)
    with pytest.raises(ValueError, match=r"trained with epochs = 2, not 3"):
        fit(vir(**options), (X, Y), None, settings(epochs=3, **changes), checkpoint=file)


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_a_run_of_two_stages_resumes_in_either(epoch: int, tmp_path: Path) -> None:
    """The second stage draws a new head, at the start of its first epoch."""
    whole, model, resumed = (vir(retrain_from=0.5) for _ in range(3))
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
        (lambda: vir(kl=0.5), f"method kl = {PRESETS['default'].kl}, not 0.5"),
        (lambda: vir(smoothing={"exact": True}), "method smoothing = "),
        (lambda: vir(hidden=6), "was trained with another network"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(
    other: Callable[[], TailModel], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "run.pt"
    fit(vir(), (X, Y), None, settings(epochs=1), checkpoint=file)
    with pytest.raises(ValueError, match=r"run\.pt was trained with") as error:
        fit(other(), (X, Y), None, settings(), checkpoint=file)
    assert message in str(error.value)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("part", ["an input", "a label", "a weight", "a validation label"])
def test_a_checkpoint_of_other_data_of_the_same_size_is_refused(part: str, tmp_path: Path) -> None:
    file, weight = tmp_path / "run.pt", torch.ones(len(Y))
    fit(vir(), (X, Y, weight), VALID, settings(epochs=1), checkpoint=file)
    x, y, valid = X.clone(), Y.clone(), (VALID[0], VALID[1].clone())
    if part == "an input":
        x[3, 0] += 1e-6
    elif part == "a label":
        y[3] += 1e-4  # stays in its bin
    elif part == "a weight":
        weight[3] = 2.0
    else:
        valid[1][0] += 0.5
    with pytest.raises(ValueError, match=r"run\.pt was trained with (training|validation) data = ") as error:
        fit(vir(), (x, y, weight), valid, settings(epochs=2), checkpoint=file)
    assert "delete it to start over" in str(error.value)
    again = fit(vir(), (X, Y, torch.ones(len(Y))), VALID, settings(epochs=2), checkpoint=file)
    assert len(again.history) == 2


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    fit(vir(), (X, Y), None, settings(epochs=1), checkpoint=file)
    state = torch.load(file, weights_only=True)
    torch.save({**state, "version": 99}, file)
    with pytest.raises(ValueError, match=r"run\.pt has checkpoint version 99, not 1; delete it"):
        fit(vir(), (X, Y), None, settings(), checkpoint=file)


@pytest.mark.parametrize("damage", ["garbage", "truncated", "empty", "foreign", "pickle"])
def test_a_file_that_is_no_checkpoint_is_refused(damage: str, tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    fit(vir(), (X, Y), None, settings(epochs=1), checkpoint=file)
    whole = file.read_bytes()
    if damage == "foreign":
        torch.save({"model": torch.zeros(2)}, file)
    else:
        pickled = pickle.dumps(Path("/"))  # code that a checkpoint must not run
        content = {
            "garbage": b"not a checkpoint",
            "truncated": whole[: len(whole) // 2],
            "empty": b"",
        }
        file.write_bytes(content.get(damage, pickled))
    with pytest.raises(ValueError, match=r"run\.pt is not a checkpoint of tailwise .*; delete it or name"):
        fit(vir(), (X, Y), None, settings(), checkpoint=file)


def test_a_checkpoint_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "deep" / "er" / "run.pt"
    fit(vir(), (X, Y), None, settings(epochs=1), checkpoint=file)
    whole = file.read_bytes()

    def full_disk(state: object, path: Path) -> None:
        Path(path).write_bytes(b"half")
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full_disk)
        with pytest.raises(OSError, match="no space left"):
            fit(vir(), (X, Y), None, settings(), checkpoint=file)
    assert file.read_bytes() == whole
    assert list(file.parent.iterdir()) == [file]
    fit(vir(), (X, Y), None, settings(), checkpoint=file)
    assert torch.load(file, weights_only=True)["epoch"] == 3
    assert list(file.parent.iterdir()) == [file]


def test_files_written_atomically_have_ordinary_permissions(tmp_path: Path) -> None:
    plain, atomic = tmp_path / "plain", tmp_path / "atomic"
    plain.write_text("x")
    write_atomically(atomic, lambda path: path.write_text("x"))
    assert atomic.stat().st_mode == plain.stat().st_mode


# -- early stopping and the best weights ---------------------------------------------------------


@pytest.mark.parametrize("monitor", ["balanced_mae", "few/mae", "balanced_nll", "pearson", "gap/mae"])
def test_the_best_weights_reproduce_the_best_score(monitor: str) -> None:
    x, y = table(600)
    bins = LabelBins.from_labels(y, edges=BINS.edges)
    model, metric = vir(bins=bins), get_metric(monitor)
    result = fit(model, (x, y), VALID, settings(epochs=6, lr=0.05, batch_size=200, monitor=monitor))
    scores = [row[monitor] for row in result.history]
    best = {"lower": min, "higher": max, "target": lambda s: min(s, key=abs)}[metric.direction](scores)
    assert result.monitor == monitor
    assert result.best_score == best
    assert result.best_epoch == 1 + scores.index(best)
    assert metric(predict(model, X_VALID, batch_size=7), Y_VALID, bins) == pytest.approx(best, rel=1e-6)
    assert len(set(scores)) > 1
    assert not model.training


@pytest.mark.parametrize("monitor", ["mae", "pearson"])
def test_training_stops_when_patience_runs_out(monitor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    falling = iter([5.0, 4.0, 4.0, 6.0, 1.0])
    sign = 1 if monitor == "mae" else -1
    monkeypatch.setattr(training._Loop, "_validate", lambda self: sign * next(falling))
    model, second = vir(), vir()
    result = fit(model, (X, Y), VALID, settings(epochs=5, patience=2, monitor=monitor))
    assert result.stopped_early
    assert [row["epoch"] for row in result.history] == [1, 2, 3, 4]
    assert (result.best_epoch, result.best_score) == (2, sign * 4.0)
    fit(second, (X, Y), None, settings(epochs=2))
    assert_same(weights(model), weights(second))


def test_patience_that_runs_out_with_the_epochs_is_no_early_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores = iter([1.0, 2.0, 3.0])
    monkeypatch.setattr(training._Loop, "_validate", lambda self: next(scores))
    result = fit(point(), (X, Y), VALID, settings(epochs=3, patience=2))
    assert not result.stopped_early
    assert len(result.history) == 3


def test_without_patience_training_goes_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter(float(n) for n in range(30))
    monkeypatch.setattr(training._Loop, "_validate", lambda self: next(scores))
    result = fit(point(), (X, Y), VALID, settings(epochs=25, patience=None, batch_size=ROWS))
    assert (len(result.history), result.best_epoch, result.stopped_early) == (25, 1, False)


def test_the_last_weights_stay_if_the_best_are_not_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores = iter([1.0, 2.0, 3.0])
    monkeypatch.setattr(training._Loop, "_validate", lambda self: next(scores))
    model, last = vir(), vir()
    result = fit(model, (X, Y), VALID, settings(restore_best=False))
    fit(last, (X, Y), None, settings())
    assert (result.best_epoch, result.best_score) == (1, 1.0)
    assert_same(weights(model), weights(last))


def test_without_validation_data_the_last_epoch_counts() -> None:
    model = vir()
    result = fit(model, (X, Y), None, settings(patience=1))
    assert result.best_epoch == len(result.history) == 3
    assert math.isnan(result.best_score)
    assert not result.stopped_early
    assert set(result.history[0]) == {"epoch", "loss", "loss/nll", "loss/reg", "loss/kl", "seconds"}
    assert not model.training


def test_the_history_adds_up() -> None:
    result = fit(vir(), (X, Y), VALID, settings())
    for row in result.history:
        parts = sum(value for name, value in row.items() if name.startswith("loss/"))
        assert row["loss"] == pytest.approx(parts, rel=1e-5)
        assert row["seconds"] > 0


def test_a_score_that_is_not_a_number_is_never_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter([math.nan, 2.0, math.nan])
    monkeypatch.setattr(training._Loop, "_validate", lambda self: next(scores))
    result = fit(point(), (X, Y), VALID, settings())
    assert (result.best_epoch, result.best_score) == (2, 2.0)


@pytest.mark.parametrize("loader", [False, True])
def test_validation_rows_without_a_finite_prediction_are_named(loader: bool) -> None:
    """Every score would be NaN, and the first epoch's weights kept."""
    broken = X_VALID.clone()
    broken[[4, 9], 2] = math.nan
    valid = [(broken, Y_VALID)] if loader else (broken, Y_VALID)
    known = "impute or drop rows" if loader else r"inputs of row 4 \(2 bad\) are not; impute or drop them"
    with pytest.raises(ValueError, match=f"predictions of 2 of 60 validation rows are not finite: {known}"):
        fit(vir(), (X, Y), valid, settings())


@pytest.mark.parametrize(("epochs", "warned"), [(1, True), (2, False)])
def test_a_second_stage_that_never_came_is_told(
    epochs: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    fit(vir(retrain_from=0.5), (X, Y), None, settings(epochs=epochs))
    assert ("before the second stage: lower retrain_from or raise epochs" in caplog.text) is warned


class Counting(nn.Linear):
    """A backbone with state that is no tensor."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += self.training
        return super().forward(x)

    def get_extra_state(self) -> dict[str, int]:
        return {"calls": self.calls}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.calls = state["calls"]


def test_a_backbone_may_have_state_of_any_kind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scores = iter([2.0, 1.0, 3.0])
    monkeypatch.setattr(training._Loop, "_validate", lambda self: next(scores))
    model = point(lambda: Counting(INPUTS, 8))
    result = fit(model, (X, Y), VALID, settings(), checkpoint=tmp_path / "state.pt")
    assert result.best_epoch == 2
    assert model.backbone.calls == 2 * 3  # those of the epoch whose weights were kept
    again = point(lambda: Counting(INPUTS, 8))
    fit(again, (X, Y), VALID, settings(), checkpoint=tmp_path / "state.pt")
    assert again.backbone.calls == 2 * 3


def test_a_monitor_of_a_region_without_validation_labels_is_an_error() -> None:
    with pytest.raises(ValueError, match="monitor 'many/mae' is not defined on the validation data"):
        fit(point(), (X, Y), (X[:1], Y[:1] * 0 + 9), settings(monitor="many/mae"))


@pytest.mark.parametrize(
    ("wrong", "right"), [("balancedmae", "balanced_mae"), ("few/nnl", "nll"), ("fwe/mae", "few")]
)
def test_an_unknown_monitor_names_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(ValueError, match=f"unknown .*did you mean '{right}'"):
        TrainConfig(monitor=wrong)


# -- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("optimizer", "adamm", "unknown optimizer 'adamm'; did you mean 'adam"),
        ("schedule", "cosin", "unknown schedule 'cosin'; did you mean 'cosine'"),
        ("precision", "bf-16", "unknown precision 'bf-16'; did you mean 'bf16'"),
        *((name, 0, f"{name} must be positive, got 0") for name in ("epochs", "batch_size", "lr")),
        *((name, 0, f"{name} must be positive, got 0") for name in ("clip_norm", "patience", "devices")),
        ("lr", math.nan, "lr must be positive, got nan"),
        *((n, -1, f"{n} must not be negative") for n in ("weight_decay", "warmup", "decay", "seed")),
    ],
)
def test_wrong_settings_are_errors(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainConfig(**{field: value})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [2, 2, 2, 2, 2, 2]),
        (
            {"schedule": "cosine"},
            [2, 1 + math.cos(math.pi / 6), 1.5, 1, 0.5, 1 + math.cos(math.pi * 5 / 6)],
        ),
        ({"schedule": "step", "milestones": (1, 2.5), "decay": 0.5}, [2, 2, 1, 1, 1, 0.5]),
        ({"warmup": 2.0}, [0, 0.5, 1, 1.5, 2, 2]),
        ({"warmup": 1.0, "schedule": "step", "milestones": (2,)}, [0, 1, 2, 2, 0.2, 0.2]),
    ],
)  # epochs 0, 1/2, 1, ... of three
def test_schedules_by_hand_and_in_the_optimizer(options: dict[str, Any], expected: list[float]) -> None:
    config = settings(lr=2.0, batch_size=45, optimizer="sgd", **options)
    assert [learning_rate(e / 2, config) for e in range(6)] == pytest.approx(expected, abs=1e-8)
    used: list[float] = []
    handle = register_optimizer_step_pre_hook(lambda o, *_: used.append(o.param_groups[0]["lr"]))
    try:
        fit(point(), (X, Y), None, config)
    finally:
        handle.remove()
    assert used == pytest.approx(expected, abs=1e-8)


def test_a_schedule_ends_where_it_should() -> None:
    assert learning_rate(100, TrainConfig(schedule="cosine")) == pytest.approx(0, abs=1e-12)
    assert learning_rate(100, TrainConfig(lr=1.0, schedule="step")) == pytest.approx(0.01)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_a_step_of_each_optimizer_is_torch_s_own(optimizer: str) -> None:
    """One step on the whole table, against the textbook."""
    model, twin = point(), point()
    fit(
        model,
        (X, Y),
        None,
        settings(epochs=1, batch_size=ROWS, optimizer=optimizer, clip_norm=None),
    )
    twin.loss(X, Y)[0].backward()
    for (name, after), before in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert before.grad is not None
        if optimizer == "sgd":
            expected = before - 0.01 * (before.grad + 1e-4 * before)
            torch.testing.assert_close(after, expected)
        else:
            moved = (after - before).abs()  # Adam's first step has the size of the learning rate
            sure = before.grad.abs() > 1e-3
            torch.testing.assert_close(
                moved[sure], torch.full_like(moved[sure], 0.01), rtol=1e-2, atol=1e-5, msg=name
            )


@pytest.mark.parametrize("limit", [1e-3, 1e-1, None])
def test_clipping_bounds_the_step(limit: float | None) -> None:
    model, twin = point(), point()
    config = settings(epochs=1, batch_size=ROWS, lr=1.0, optimizer="sgd", weight_decay=0.0, clip_norm=limit)
    fit(model, (X, Y), None, config)
    twin.loss(X, Y)[0].backward()
    gradient = math.sqrt(sum(float((p.grad**2).sum()) for p in twin.parameters() if p.grad is not None))
    pairs = zip(model.parameters(), twin.parameters(), strict=True)
    moved = math.sqrt(sum(float(((a - b).detach() ** 2).sum()) for a, b in pairs))
    assert gradient > 0.1
    assert moved == pytest.approx(min(gradient, limit or math.inf), rel=1e-3)


# -- precision -----------------------------------------------------------------------------------


def test_bf16_runs_the_backbone_in_bf16_and_stays_close_to_fp32() -> None:
    kinds: set[tuple[bool, torch.dtype]] = set()
    model, plain = vir(dropout=0.0), vir(dropout=0.0)
    handle = model.backbone.register_forward_hook(lambda m, _, out: kinds.add((m.training, out.dtype)))
    half = fit(model, (X, Y), VALID, settings(epochs=6, precision="bf16"))
    handle.remove()
    full = fit(plain, (X, Y), VALID, settings(epochs=6))
    assert kinds == {(True, torch.bfloat16), (False, torch.bfloat16)}
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert all(value.isfinite().all() for value in weights(model).values())
    losses = [[row["loss"] for row in run.history] for run in (half, full)]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert losses[0] != losses[1]
    assert half.best_score == pytest.approx(full.best_score, rel=0.1)


def test_bf16_does_not_round_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """bf16 holds eight bits: labels around 1001 would all become 1000."""
    seen: list[Tensor] = []
    original = TailModel.loss

    def spy(self: TailModel, x: Any, y: Tensor, *rest: Any) -> Any:
        seen.append(y)
        return original(self, x, y, *rest)

    monkeypatch.setattr(TailModel, "loss", spy)
    labels = (Y + 1001).double()
    model = vir(bins=LabelBins.from_labels(labels))
    fit(model, (X, labels), None, settings(epochs=1, precision="bf16"))
    assert torch.equal(torch.cat(seen).sort().values, labels.sort().values)


# -- forms of data -------------------------------------------------------------------------------


class Recorder:
    """Notes the batches a model trains on, epoch by epoch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[tuple[Any, Tensor]] = []
        original, recorder = TailModel.loss, self

        def loss(self: TailModel, x: Any, y: Tensor, sample_weight: Tensor | None = None) -> Any:
            recorder.batches.append((x, y))
            return original(self, x, y, sample_weight)

        monkeypatch.setattr(TailModel, "loss", loss)


class Replay:
    """A loader that gives recorded batches, some per epoch."""

    def __init__(self, batches: list[tuple[Any, Tensor]], per_epoch: int) -> None:
        self.batches, self.per_epoch, self.epoch = batches, per_epoch, 0

    def __len__(self) -> int:
        return self.per_epoch

    def __iter__(self) -> Iterator[tuple[Any, Tensor]]:
        start = self.epoch * self.per_epoch
        self.epoch += 1
        yield from self.batches[start : start + self.per_epoch]


@pytest.mark.parametrize("batch_size", [1, 7, 32, 89, 90, 500])
def test_every_row_is_seen_once_an_epoch(batch_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(monkeypatch)
    fit(point(), (X, Y), None, settings(epochs=2, batch_size=batch_size))
    steps = -(-ROWS // batch_size)
    assert len(recorder.batches) == 2 * steps
    sizes = [len(y) for _, y in recorder.batches]
    assert max(sizes) <= batch_size
    assert max(sizes) - min(sizes) <= 1
    for epoch in range(2):
        batches = recorder.batches[epoch * steps : (epoch + 1) * steps]
        rows = torch.cat([x for x, _ in batches])
        assert torch.equal(rows[rows[:, 0].argsort()], X[X[:, 0].argsort()])
        labels = torch.cat([y for _, y in batches])
        assert torch.equal(labels[rows[:, 0].argsort()], Y[X[:, 0].argsort()])


def test_a_loader_of_the_same_batches_gives_the_same_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder = Recorder(monkeypatch)
    fast, slow = vir(), vir()
    config = settings(schedule="cosine")
    first = fit(fast, (X, Y), VALID, config)
    loader = Replay(list(recorder.batches), per_epoch=3)
    second = fit(slow, loader, DataLoader(TensorDataset(*VALID), 11), config)
    assert_same(weights(fast), weights(slow))
    for a, b in zip(figures(first)["history"], figures(second)["history"], strict=True):
        assert a == pytest.approx(b, rel=1e-5)


def test_data_that_is_a_tensor_data_or_a_tuple() -> None:
    models = [vir(), vir()]
    fit(models[0], (X, Y), VALID, settings())
    fit(models[1], TensorData(X, Y), TensorData(*VALID), settings())
    assert_same(*map(weights, models))


class TwoInputs(nn.Module):
    """Features of two named inputs, the second a code."""

    def __init__(self) -> None:
        super().__init__()
        self.body = MLP(INPUTS + 3, (8,), 0.0)
        self.codes = nn.Embedding(4, 3)

    def forward(self, numbers: Tensor, code: Tensor) -> Tensor:
        return self.body(torch.cat([numbers, self.codes(code)], dim=1))


CODES = (torch.arange(ROWS) * 7) % 4


@pytest.mark.parametrize(
    "pair",
    [lambda x, c: (x, c), lambda x, c: [x, c], lambda x, c: {"code": c, "numbers": x}],
    ids=["tuple", "list", "mapping"],
)
def test_inputs_of_several_tensors(pair: Callable[[Tensor, Tensor], Any]) -> None:
    model, reference = point(TwoInputs), point(TwoInputs)
    result = fit(model, (pair(X, CODES), Y), (pair(X, CODES), Y), settings(epochs=2))
    fit(reference, ((X, CODES), Y), ((X, CODES), Y), settings(epochs=2))
    assert_same(weights(model), weights(reference))
    prediction = predict(model, pair(X, CODES), batch_size=13)
    score = get_metric("balanced_mae")(prediction, Y, BINS)
    assert score == pytest.approx(result.best_score, rel=1e-5)


def test_sample_weights_count_rows_twice_or_not_at_all() -> None:
    weight = torch.tensor([2.0, 0.0]).repeat(ROWS // 2)
    runs = []
    whole, half = {"batch_size": ROWS}, {"batch_size": ROWS // 2}
    batches = [(X, Y, weight)]
    for data, size in (
        (TensorData(X, Y, weight), whole),
        ((X, Y, weight), whole),
        (batches, whole),
        ((X[::2], Y[::2]), half),
    ):
        model = point()
        fit(model, data, None, settings(**size, optimizer="sgd"))
        runs.append(weights(model))
    for run in runs[1:]:
        torch.testing.assert_close(runs[0], run)
    plain = point()
    fit(plain, (X, Y), None, settings(batch_size=ROWS, optimizer="sgd"))
    assert not torch.allclose(weights(plain)["head.linear.weight"], runs[0]["head.linear.weight"])


@pytest.mark.parametrize("each_label", [False, True])
def test_a_row_s_weight_counts_for_all_its_labels(each_label: bool) -> None:
    labels = torch.stack([Y, 9 - Y], 1)
    weight = torch.tensor([2.0, 0.0]).repeat(ROWS // 2)
    runs = []
    for x, y, w, size in ((X, labels, weight, ROWS), (X[::2], labels[::2], None, ROWS // 2)):
        with torch.random.fork_rng():
            torch.manual_seed(7)
            if each_label:  # a label for each of two places in a row, as for pixels
                backbone: nn.Module = nn.Sequential(nn.Linear(INPUTS, 16), nn.Unflatten(1, (2, 8)))
                model: nn.Module = TailModel(backbone, 8, BINS, Method())
            else:
                model = build_model("vanilla", MLP(INPUTS, (16, 8), 0.0), 8, [BINS, BINS])
        fit(model, TensorData(x, y, w), None, settings(batch_size=size, optimizer="sgd"))
        runs.append(weights(model))
    torch.testing.assert_close(*runs)
    if not each_label:
        with pytest.raises(
            ValueError, match=r"weights of shape \(90, 2\) for 90 losses: give one weight per row"
        ):
            fit(model, TensorData(X, labels, torch.ones(ROWS, 2)), None, settings(batch_size=ROWS))


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    """Rows of unknown number."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(zip(X, Y, strict=True))


def test_a_loader_of_unknown_length() -> None:
    result = fit(point(), DataLoader(Stream(), 32), DataLoader(Stream(), 32), settings(warmup=1.0))
    assert len(result.history) == 3
    assert result.history[-1]["loss"] < result.history[0]["loss"]


def test_data_without_a_batch_is_an_error() -> None:
    with pytest.raises(ValueError, match="the training data gave no batch"):
        fit(point(), [], None, settings())
    with pytest.raises(ValueError, match="the validation data gave no batch"):
        fit(point(), (X, Y), [], settings())
    with pytest.raises(ValueError, match="used up"):  # a generator has one epoch in it
        fit(point(), ((x, y) for x, y in [(X, Y)]), None, settings())


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: TensorData(X, Y[:-1]), ValueError, "90 rows of inputs for 89 labels"),
        (lambda: TensorData((X, X[:-2]), Y), ValueError, "88 and 90 rows of inputs for 90 labels"),
        (lambda: TensorData(X[:0], Y[:0]), ValueError, "0 rows of inputs for 0 labels"),
        (lambda: TensorData((), Y), ValueError, "no rows of inputs"),
        (
            lambda: TensorData(X, Y, Y[:3]),
            ValueError,
            "sample_weight must have the shape of the labels",
        ),
        (lambda: TensorData(X, Y, Y - 1), ValueError, "sample_weight must not be negative"),
        (lambda: TensorData(X, Y, 0 * Y), ValueError, "one weight must be positive"),
        (lambda: TensorData(X.numpy(), Y), TypeError, "inputs must be tensors.*not ndarray"),
        (lambda: predict(point(), X.numpy()), TypeError, "inputs must be tensors.*not ndarray"),
        (lambda: predict(point(), X[:0]), ValueError, "no rows to predict"),
    ],
)
def test_malformed_data_is_an_error(build: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build()


def test_a_last_row_left_over_does_not_break_batch_normalisation() -> None:
    result = fit(point(normalised), (X[:65], Y[:65]), VALID, settings(batch_size=32))
    assert math.isfinite(result.history[-1]["loss"])


# -- statistics of the latents -------------------------------------------------------------------


def test_exact_statistics_are_those_of_the_weights_at_the_epoch_s_end() -> None:
    model = vir(smoothing={"exact": True})
    fit(model, (X, Y), None, settings(epochs=1))
    with torch.no_grad():
        z_mean, z_var, _ = model._rows(X)
    expected = bin_statistics(z_mean, z_var, BINS.index(Y), len(BINS))
    assert model.smoother is not None
    for name, value in vars(model.smoother.stats).items():
        torch.testing.assert_close(value, getattr(expected, name), rtol=1e-4, atol=1e-6, msg=name)


def test_streamed_statistics_take_effect_once_an_epoch() -> None:
    model, exact = vir(), vir(smoothing={"exact": True})
    fit(model, (X, Y), None, settings(epochs=1))
    fit(exact, (X, Y), None, settings(epochs=1))
    assert model.smoother is not None
    assert exact.smoother is not None
    assert torch.equal(model.smoother.stats.count, torch.as_tensor(BINS.counts))
    assert not torch.allclose(model.smoother.stats.mu_mean, exact.smoother.stats.mu_mean)
    assert not model.smoother.sums.count.any()


def test_an_epoch_of_more_rows_than_the_bins_counted_is_one_epoch() -> None:
    model = vir()
    fit(model, [(X, Y), (X, Y), (X[:9], Y[:9])], None, settings(epochs=1))
    assert model.smoother is not None
    assert model.smoother.stats.count.sum() == 2 * ROWS + 9


# -- the guard -----------------------------------------------------------------------------------


def clean_and_bad(kind: str, row: int) -> tuple[Any, Tensor, Tensor | None]:
    """The table with one value that is not finite."""
    x, y, weight = X.clone(), Y.clone(), torch.ones(ROWS)
    if kind == "labels":
        y[row] = math.nan
    elif kind == "inputs":
        x[row, 3] = math.inf
    else:
        weight[row] = math.nan
    return x, y, weight


@pytest.mark.parametrize("kind", ["labels", "inputs", "sample_weight"])
@pytest.mark.parametrize("build", [vir, point])
def test_a_bad_value_is_named(kind: str, build: Callable[[], TailModel]) -> None:
    data = TensorData(*clean_and_bad(kind, row=17))
    with pytest.raises(NonFiniteLossError, match=rf"training rows 17: their {kind} (are|is) not") as error:
        fit(build(), data, None, settings())
    assert error.value.rows == [17]
    assert error.value.epoch == 1
    assert f"epoch 1, step {error.value.step}" in str(error.value)


def test_many_bad_rows_are_summed_up() -> None:
    labels = Y.clone()
    labels[:40] = math.nan
    with pytest.raises(NonFiniteLossError, match="and 35 more: their labels") as error:
        fit(point(), (X, labels), None, settings(batch_size=ROWS))
    assert sorted(error.value.rows) == list(range(40))


def test_a_bad_value_in_any_input_is_named() -> None:
    second = torch.randn(ROWS)
    second[5] = math.nan

    class Sum(MLP):
        def forward(self, x: Tensor, extra: Tensor) -> Tensor:
            return super().forward(x + extra.unsqueeze(1))

    with pytest.raises(NonFiniteLossError, match="training rows 5: their inputs"):
        fit(point(lambda: Sum(INPUTS, (8,), 0.0)), ((X, second), Y), None, settings())


@pytest.mark.parametrize("build", [vir, point])
@pytest.mark.parametrize("kind", ["labels", "inputs"])
def test_the_weights_are_those_before_the_bad_step(kind: str, build: Callable[[], TailModel]) -> None:
    x, y, _ = clean_and_bad(kind, row=70)
    batches = [(x[start : start + 30], y[start : start + 30]) for start in (0, 30, 60)]
    model, good = build(), build()
    start = weights(model)
    with pytest.raises(NonFiniteLossError, match="rows of the batch 10: ") as error:
        fit(model, batches, None, settings(epochs=1))
    assert (error.value.epoch, error.value.step, error.value.rows) == (1, 3, [10])
    fit(good, batches[:2], None, settings(epochs=1))
    trained = {name for name, _ in model.named_parameters()}
    now, expected = weights(model), weights(good)
    assert_same({k: now[k] for k in trained}, {k: expected[k] for k in trained})
    assert_same({k: now[k] for k in now.keys() - trained}, {k: start[k] for k in now.keys() - trained})


def test_a_model_can_be_trained_after_the_data_was_mended() -> None:
    for model in (vir(), point(normalised)):
        with pytest.raises(NonFiniteLossError):
            fit(model, TensorData(*clean_and_bad("inputs", 3)), None, settings(batch_size=ROWS))
        assert all(value.isfinite().all() for value in weights(model).values())
        result = fit(model, (X, Y), VALID, settings())
        assert all(value.isfinite().all() for value in weights(model).values())
        assert math.isfinite(result.best_score)


def test_a_learning_rate_that_explodes_is_named_with_its_remedy() -> None:
    model = point()
    config = settings(epochs=9, lr=1e30, optimizer="sgd", clip_norm=None)
    with pytest.raises(NonFiniteLossError, match="inputs and labels are finite; lower the learning rate"):
        fit(model, (X, Y), None, config)
    assert all(p.isfinite().all() for p in model.parameters())


class Kink(nn.Module):
    """Finite itself, with a gradient that is not: the square root at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(INPUTS, 8))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.weight * 0).sqrt()


def test_a_gradient_that_is_not_finite_is_caught_too() -> None:
    model = point(Kink)
    with pytest.raises(NonFiniteLossError, match="each loss is finite but a gradient is not") as error:
        fit(model, (X, Y), None, settings())
    assert error.value.rows == []
    assert torch.equal(model.backbone.weight, torch.ones(INPUTS, 8))


def test_the_guard_tells_a_later_epoch() -> None:
    class Turning:
        epoch = 0

        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            self.epoch += 1
            yield X, Y
            yield X, Y * math.nan if self.epoch == 2 else Y

    with pytest.raises(NonFiniteLossError, match="epoch 2, step 2") as error:
        fit(point(), Turning(), None, settings())
    assert (error.value.epoch, error.value.step) == (2, 2)


def test_a_flag_read_late_still_names_its_own_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU does: flags are read steps later, and no step is taken from the bad one on."""

    class Event:
        def record(self) -> None: ...
        def synchronize(self) -> None: ...

    original = training._Loop._guarded_step

    def late(self: Any, loss: Tensor, epoch: int, step: int, batch: Any) -> None:
        raise_if_failed, optimizer_step = self._raise_if_failed, self.optimizer.step
        with monkeypatch.context() as patch:
            patch.setattr(self, "_raise_if_failed", lambda epoch, waiting: raise_if_failed(epoch, 4))
            patch.setattr(self.optimizer, "step", lambda: None if self.failed else optimizer_step())
            self_event = Event()
            original(self, loss, epoch, step, batch)
            self.pending[-1] = self.pending[-1]._replace(event=self_event)

    monkeypatch.setattr(training._Loop, "_guarded_step", late)
    labels = Y.clone()
    labels[12] = math.nan
    batches = [(X[start : start + 10], labels[start : start + 10]) for start in range(0, ROWS, 10)]
    model, good = point(), point()
    with pytest.raises(NonFiniteLossError, match=r"epoch 1, step 2 .*rows of the batch 2: their labels"):
        fit(model, batches, None, settings())
    fit(good, batches[:1], None, settings(epochs=1))
    assert_same(weights(model), weights(good))


# -- progress ------------------------------------------------------------------------------------


def forced_console(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Make rich believe in a terminal that is a string."""
    import rich.console

    screen, real = io.StringIO(), rich.console.Console
    monkeypatch.setattr(
        rich.console, "Console", lambda **_: real(file=screen, force_terminal=True, width=150)
    )
    return screen


@pytest.mark.parametrize("progress", [None, True])
def test_a_terminal_gets_a_bar_with_the_balanced_error(
    progress: bool | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    screen = forced_console(monkeypatch)
    with caplog.at_level(logging.INFO, logger="tailwise"):
        result = fit(point(), (X, Y), VALID, settings(), progress=progress)
    text = screen.getvalue()
    assert "epoch 3/3" in text
    assert f"balanced mae {result.history[-1]['balanced_mae']:.4g} (best: {result.best_epoch})" in text
    assert not caplog.records


@pytest.mark.parametrize("how", ["no terminal", "turned off", "no rich"])
def test_elsewhere_there_are_log_lines(
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = forced_console(monkeypatch) if how == "turned off" else io.StringIO()
    if how == "no rich":
        monkeypatch.setitem(sys.modules, "rich.console", None)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    with caplog.at_level(logging.INFO, logger="tailwise"):
        result = fit(point(), (X, Y), VALID, settings(), progress=False if how == "turned off" else None)
    lines = [record.getMessage() for record in caplog.records if record.name == "tailwise.learning.progress"]
    assert len(lines) == 3
    first = result.history[0]
    assert lines[0] == (
        f"epoch 1/3  loss {first['loss']:.4g}  balanced mae {first['balanced_mae']:.4g} (best: 1)"
    )
    assert screen.getvalue() == capsys.readouterr().out == ""


def test_without_validation_data_the_line_has_no_score(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="tailwise"):
        fit(point(), (X, Y), None, settings(epochs=1), progress=False)
    assert "balanced" not in caplog.text
    assert "epoch 1/1  loss" in caplog.text


# -- prediction ----------------------------------------------------------------------------------


@pytest.mark.parametrize("training_mode", [True, False])
def test_predict_does_not_depend_on_the_batch_size_and_keeps_the_mode(training_mode: bool) -> None:
    model = vir()
    fit(model, (X, Y), None, settings(epochs=1))
    model.train(training_mode)
    whole = predict(model, X)
    for size in (1, 7, ROWS):
        parts = predict(model, X, batch_size=size)
        torch.testing.assert_close(parts.mean, whole.mean, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(parts.variance, whole.variance, rtol=1e-5, atol=1e-6)
    assert whole.shape == (ROWS,)
    assert not whole.mean.requires_grad
    assert model.training is training_mode


def test_predict_keeps_the_mode_when_it_fails() -> None:
    model = vir().train()
    with pytest.raises(RuntimeError):
        predict(model, X[:, :2])
    assert model.training


def test_a_trained_model_pickles_and_trains_on() -> None:
    model = vir()
    fit(model, (X, Y), VALID, settings(epochs=1))
    copy = pickle.loads(pickle.dumps(model))
    assert_same(weights(copy), weights(model))
    torch.testing.assert_close(predict(copy, X).mean, predict(model, X).mean)
    fit(copy, (X, Y), VALID, settings(epochs=1))
    assert differ(weights(copy), weights(model))


@pytest.mark.parametrize(
    ("name", "message"),
    [("cuda", "has no 'cuda' .*take 'auto'"), ("cdua", "unknown device 'cdua'; did you mean 'cuda'")],
)
def test_a_device_that_is_not_there_is_named(
    name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = vir()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=message):
        fit(model, (X, Y), None, settings(accelerator=name))


# -- a GPU ---------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_a_gpu_is_not_waited_for_in_a_step() -> None:
    """What makes the host wait happens as often in an epoch of 4 steps as in one of 16."""
    waits = []
    for size in (24, 6):
        model = vir()
        fit(model, (X, Y), None, settings(epochs=1, accelerator="cuda"))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                fit(model, (X, Y), None, settings(epochs=1, batch_size=size, accelerator="cuda"))
            finally:
                torch.cuda.set_sync_debug_mode("default")
        places = [w for w in caught if "called a synchronizing" in str(w.message)]
        waits.append(Counter(f"{w.filename}:{w.lineno}" for w in places))
    assert waits[0] == waits[1]


@pytest.mark.gpu
@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_a_gpu_takes_no_step_from_the_bad_one_on(optimizer: str) -> None:
    labels = Y.clone()
    labels[12] = math.nan
    starts = range(0, ROWS, 5)
    batches = [(X[start : start + 5], labels[start : start + 5]) for start in starts]
    model, good = vir(), vir()
    changes = {"accelerator": "cuda", "optimizer": optimizer}
    with pytest.raises(NonFiniteLossError, match=r"epoch 1, step 3 .*rows of the batch 2: their"):
        fit(model, batches, None, settings(**changes))
    fit(good, batches[:2], None, settings(epochs=1, **changes))
    for (name, a), b in zip(model.named_parameters(), good.parameters(), strict=True):
        torch.testing.assert_close(a, b, msg=name)


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


# -- two devices ---------------------------------------------------------------------------------

TWO_RANKS = dedent(
    """
    import os, sys, warnings
    from pathlib import Path

    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    from tailwise.core.labels import LabelBins
    from tailwise.metrics import get_metric
    from tailwise.networks.model import VIR
    from tailwise.learning.loop import TrainConfig, fit, predict

    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(41, 5, generator=generator)
    y = x[:, 0].mul(3).round()
    bins = LabelBins.from_labels(y)

    def model(**options):
        torch.manual_seed(7)
        body = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2))
        return VIR(body, 8, bins, **options)

    def config(**changes):
        small = {"epochs": 3, "batch_size": 8, "accelerator": "cpu", "devices": 2}
        return TrainConfig(**{**small, **changes})

    def run(trained, **changes):
        data, valid = changes.pop("data", (x, y)), changes.pop("valid", (x, y))
        result = fit(trained, data, valid, config(**changes), checkpoint=checkpoint)
        return {"state": trained.state_dict(), "losses": [r["loss"] for r in result.history],
                "parameters": dict(trained.named_parameters()), "best": result.best_score,
                "again": get_metric("balanced_mae")(predict(trained, x), y, bins)}

    checkpoint, runs = None, {}
    runs["whole"] = run(model(), restore_best=False)
    checkpoint = folder / "run.pt"
    run(model(), restore_best=False, epochs=2)
    runs["resumed"] = run(model(), restore_best=False)
    checkpoint = None
    runs["exact"] = run(model(smoothing={"exact": True}), epochs=1, restore_best=False)
    loader = DataLoader(TensorDataset(x, y), 7, shuffle=True)
    runs["loader"] = run(model(), data=loader, valid=DataLoader(TensorDataset(x, y), 9), patience=1)
    rank = os.environ["LOCAL_RANK"]
    torch.save(runs, folder / f"rank{rank}.pt")
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    """
)


def _train_two_ranks(folder: Path) -> None:
    script = folder / "two_ranks.py"
    script.write_text(TWO_RANKS)
    source = str(Path(training.__file__).parents[2])
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV_"))}
    env = {**outside, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), str(folder)],
        env=env, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])


@pytest.mark.slow
def test_two_ranks_train_one_model(connected: Callable[..., Path]) -> None:
    folder = connected(_train_two_ranks)
    ranks = [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in (0, 1)]
    for name in ranks[0]:
        first, second = (rank[name] for rank in ranks)
        assert_same(first["parameters"], second["parameters"])
        assert first["best"] == second["best"]
    whole, resumed = ranks[0]["whole"], ranks[0]["resumed"]
    assert_same(whole["state"], resumed["state"])
    assert whole["losses"] == resumed["losses"]
    assert ranks[0]["whole"]["losses"] != ranks[1]["whole"]["losses"]  # each has rows of its own
    # The score is of all validation rows, whoever loads them.
    loader = ranks[0]["loader"]
    assert loader["best"] == pytest.approx(loader["again"], rel=1e-6)
    # Both have the statistics of all rows, each row counted once.
    exact = ranks[0]["exact"]["state"]
    assert int(exact["smoother.stats_count"].sum()) == 41
    assert_same(
        *({k: v for k, v in r["exact"]["state"].items() if k.startswith("smoother.stats")} for r in ranks)
    )
