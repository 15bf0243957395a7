"""The training loop: seeds, early stopping, forms of data, precision, prediction, two ranks."""

from __future__ import annotations

import logging
import math
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from tailwise.labels.bins import LabelBins
from tailwise.metrics import get_metric
from tailwise.networks.network import Network
from tailwise.training import loop as training
from tailwise.training.loop import TensorData, fit, predict, visible
from tests.training.small_models import (
    BINS,
    ROWS,
    VALID,
    X_VALID,
    Y_VALID,
    X,
    Y,
    assert_same,
    differ,
    figures,
    normalised,
    point,
    settings,
    table,
    vir,
    weights,
)


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


@pytest.mark.parametrize("monitor", ["few/mae", "balanced_nll", "pearson", "gap/mae"])
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
    again = metric(predict(model, X_VALID, batch_size=7), Y_VALID, bins)
    assert again == pytest.approx(
        best, rel=1e-4
    )  # processors round sums over 7 rows in float32 in other ways
    assert min(scores, key=lambda score: abs(score - again)) == best and len(set(scores)) > 1
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


def test_without_validation_data_the_last_epoch_counts() -> None:
    model = vir()
    result = fit(model, (X, Y), None, settings(patience=1))
    assert result.best_epoch == len(result.history) == 3
    assert math.isnan(result.best_score)
    assert not result.stopped_early
    assert set(result.history[0]) == {"epoch", "loss", "loss/nll", "loss/evidence", "loss/kl", "seconds"}
    assert not model.training


@pytest.mark.parametrize("loader", [False, True])
def test_validation_rows_without_a_finite_prediction_are_named(loader: bool) -> None:
    """Every score would be NaN, and the first epoch's weights kept."""
    broken = X_VALID.clone()
    broken[[4, 9], 2] = math.nan
    valid = [(broken, Y_VALID)] if loader else (broken, Y_VALID)
    known = "impute or drop rows" if loader else r"inputs of row 4 are not finite \(2 such rows\); impute"
    with pytest.raises(ValueError, match=f"predictions of 2 of 60 validation rows are not finite: {known}"):
        fit(vir(), (X, Y), valid, settings())


def test_a_monitor_of_a_region_without_validation_labels_is_an_error() -> None:
    with pytest.raises(ValueError, match="monitor 'many/mae' is undefined: the validation data has"):
        fit(point(), (X, Y), (X[:1], Y[:1] * 0 + 9), settings(monitor="many/mae"))


@pytest.mark.parametrize("limit", [1e-2, None])
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


class Recorder:
    """Notes the batches a model trains on, epoch by epoch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[tuple[Any, Tensor]] = []
        original, recorder = Network.loss, self

        def loss(self: Network, x: Any, y: Tensor, *others: Tensor | None) -> Any:
            recorder.batches.append((x, y))
            return original(self, x, y, *others)

        monkeypatch.setattr(Network, "loss", loss)


@pytest.mark.parametrize("batch_size", [7, 89, 500])
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


class Shards:
    """Rows in another order each epoch, as those of a stream; they may end in the middle of one."""

    row_count = ROWS

    def __init__(self, batches: float = math.inf) -> None:
        self.left, self.seeds = batches, []  # type: ignore[var-annotated]

    def fingerprint(self) -> str:
        return "rows in an order of their own"

    def shard(self, number: int, shards: int, size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        self.seeds.append(seed)
        order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(seed))
        for rows in order.tensor_split(-(-ROWS // size)):
            self.left -= 1
            if self.left < 0:
                raise RuntimeError("the stream ended")
            yield X[rows], Y[rows]


def test_a_stream_equals_tensors_in_the_same_order_and_resumes(tmp_path: Path) -> None:
    config = settings(schedule="cosine", epochs=3)
    steps = -(-ROWS // config.batch_size)
    data, models = Shards(), [vir() for _ in range(3)]
    fit(models[0], (X, Y), VALID, config)
    fit(models[1], data, VALID, config)
    assert_same(weights(models[0]), weights(models[1]))
    assert len(set(data.seeds)) == 3
    with pytest.raises(RuntimeError, match="the stream ended"):
        fit(models[2], Shards(2 * steps + 1), VALID, config, checkpoint=tmp_path / "state.pt")
    again = vir()
    fit(again, rest := Shards(), VALID, config, checkpoint=tmp_path / "state.pt")
    assert_same(weights(models[0]), weights(again))
    assert rest.seeds == data.seeds[2:]
    with pytest.raises(TypeError, match="validation rows cannot come in shards"):
        fit(again, (X, Y), Shards(), config)


def test_an_offset_reaches_training_validation_and_prediction() -> None:
    """As tensors or in the batches of a loader: the weights and the validation scores are the same."""
    f0, f0_valid = Y + X[:, 1], Y_VALID + X_VALID[:, 1]
    fast, slow = point(offset=True), point(offset=True)
    first = fit(fast, (X, Y, None, f0), TensorData(*VALID, offset=f0_valid), settings(batch_size=ROWS))
    loader = [(X, Y, None, f0)]
    second = fit(slow, loader, [(X_VALID, Y_VALID, None, f0_valid)], settings(batch_size=ROWS))
    for a, b in zip(figures(first)["history"], figures(second)["history"], strict=True):
        assert a == pytest.approx(b, rel=1e-5)
    assert differ(weights(fast), weights(point(offset=True)))
    again = predict(fast, X_VALID, batch_size=7, offset=f0_valid)
    metric = get_metric("balanced_mae")
    assert metric(again, Y_VALID, BINS) == pytest.approx(first.best_score, rel=1e-6)
    with pytest.raises(ValueError, match=r"a batch has 5 parts: expected \(x, y\)"):
        fit(fast, [(X, Y, None, f0, f0)], None, settings())
    bad = f0_valid.clone()
    bad[[3, 5]] = math.nan
    with pytest.raises(ValueError, match="validation rows are not finite: offsets of row 3 are not"):
        fit(fast, (X, Y, None, f0), (X_VALID, Y_VALID, None, bad), settings())


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
    assert not torch.allclose(
        weights(plain)["tails.0.head.linear.weight"], runs[0]["tails.0.head.linear.weight"]
    )


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    """Rows of unknown number."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(zip(X, Y, strict=True))


def test_a_loader_of_unknown_length() -> None:
    result = fit(point(), DataLoader(Stream(), 32), DataLoader(Stream(), 32), settings(warmup=1.0))
    assert len(result.history) == 3


def test_data_without_a_batch_is_an_error() -> None:
    with pytest.raises(ValueError, match="the training data has no batch"):
        fit(point(), [], None, settings())
    with pytest.raises(ValueError, match="the validation data has no batch"):
        fit(point(), (X, Y), [], settings())
    with pytest.raises(ValueError, match="exhausted"):  # a generator has one epoch in it
        fit(point(), ((x, y) for x, y in [(X, Y)]), None, settings())


def test_a_last_row_left_over_does_not_break_batch_normalisation() -> None:
    result = fit(point(normalised), (X[:65], Y[:65]), VALID, settings(batch_size=32))
    assert math.isfinite(result.history[-1]["loss"])


RANKS = dedent(
    """
    import os, sys
    from pathlib import Path

    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    from tailwise.labels.bins import LabelBins
    from tailwise.metrics import get_metric
    from tailwise.networks.ranks import all_predictions, shared_bins
    from tailwise.networks.vir import VIR
    from tailwise.training.loop import TrainConfig, fit, predict

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(41, 5, generator=generator)
    y = x[:, 0].mul(3).round()
    bins = LabelBins.from_labels(y)
    weight = torch.rand(41, generator=generator)

    def model():
        torch.manual_seed(7)
        return VIR(nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.2)), 8, bins)

    def main(folder, ranks):
        def run(trained, data=(x, y, weight / weight.mean()), valid=(x, y), checkpoint=None, **changes):
            small = {"epochs": 3, "batch_size": 8, "accelerator": "cpu", "shards": 3}
            config = TrainConfig(**{**small, **changes})
            result = fit(trained, data, valid, config, checkpoint=checkpoint)
            rows = [{k: v for k, v in row.items() if k != "seconds"} for row in result.history]
            return {"state": trained.state_dict(), "rows": rows, "best": result.best_score,
                    "again": get_metric("balanced_mae")(predict(trained, x), y, bins)}

        runs = {"plain": run(model())}
        run(model(), checkpoint=folder / f"{ranks}.pt", epochs=2)
        runs["resumed"] = run(model(), checkpoint=folder / f"{ranks}.pt")
        if ranks == 2:
            rank = torch.distributed.get_rank()
            runs["loader"] = run(model(), valid=DataLoader(TensorDataset(x, y), 9), shards=None)
            found = shared_bins(y[rank::2])
            runs["bins"] = torch.tensor(found.counts), torch.tensor(found.edges)
            prediction, labels = all_predictions(predict(model(), x[rank::2]), y[rank::2])
            runs["all"] = prediction.mean, labels
            torch.save(runs, folder / f"rank{rank}.pt")
            torch.distributed.barrier()
            torch.distributed.destroy_process_group()
        return runs

    if __name__ == "__main__":
        torch.set_num_threads(1)
        torch.distributed.init_process_group("gloo")
        main(Path(sys.argv[1]), 2)
    """
)


def _train_two_ranks(folder: Path) -> None:
    script = folder / "two_ranks.py"
    script.write_text(RANKS)
    source = str(Path(training.__file__).parents[2])
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV_"))}
    env = {**outside, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    launch = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = subprocess.run(
        [*launch, str(script), str(folder)],
        env=env, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])


def assert_near(got: dict[str, Any], want: dict[str, Any], tolerance: float) -> None:
    for name, value in want.items():
        torch.testing.assert_close(got[name], value, rtol=tolerance, atol=tolerance, msg=name)


def test_shards_give_the_numbers_of_the_whole_batch() -> None:
    """Without random numbers in a step, only rounding tells shards from the whole; rows have weights."""
    models, weight = [point() for _ in range(2)], torch.linspace(0.5, 1.5, ROWS)
    for model, shards in zip(models, (1, 3), strict=True):
        fit(model, (X, Y, weight), None, settings(batch_size=32, shards=shards))
    assert_near(weights(models[0]), weights(models[1]), 1e-5)
    with pytest.raises(ValueError, match="a loader cannot be divided into shards"):
        fit(point(), [(X, Y)], None, settings(shards=2))


def test_processes_of_torchrun_must_be_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    with pytest.raises(RuntimeError, match=r"first call torch.distributed.init_process_group"):
        fit(point(), (X, Y), None, settings())


@pytest.mark.slow
def test_two_ranks_train_the_model_of_one(connected: Callable[..., Path]) -> None:
    folder = connected(_train_two_ranks)
    ranks = [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in (0, 1)]
    alone = runpy.run_path(str(folder / "two_ranks.py"))["main"](folder, 1)
    for name in ("plain", "resumed", "loader"):
        first, second = (rank[name] for rank in ranks)
        assert_same(first["state"], second["state"])
        assert first["rows"] == second["rows"]
    assert_near(ranks[0]["plain"]["state"], alone["plain"]["state"], 1e-5)
    for one, two in zip(alone["plain"]["rows"], ranks[0]["plain"]["rows"], strict=True):
        assert two == pytest.approx(one, rel=1e-4)
    counts = ranks[0]["plain"]["state"]["tails.0.smoother.stats_count"]
    assert int(counts.sum()) == 41  # each row once
    assert_same(ranks[0]["plain"]["state"], ranks[0]["resumed"]["state"])
    assert_same(alone["plain"]["state"], alone["resumed"]["state"])
    # The score is of all validation rows, whoever loads them.
    loader = ranks[0]["loader"]
    assert loader["best"] == pytest.approx(loader["again"], rel=1e-6)
    x, y = (runpy.run_path(str(folder / "two_ranks.py"))[name] for name in ("x", "y"))
    bins = LabelBins.from_labels(y)
    mean, labels = ranks[0]["all"]
    assert torch.equal(labels, torch.cat([y[::2], y[1::2]]))
    assert len(mean) == len(x)
    for rank in ranks:
        counts, edges = rank["bins"]
        np.testing.assert_array_equal(counts, bins.counts)
        np.testing.assert_array_equal(edges, bins.edges)


# -- lines of training -------------------------------------------------------------------------------


def test_lines_are_visible_where_no_logging_is_set_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(training, "_SECONDS_BETWEEN", 3600.0)  # the machine may be slow
    ours = logging.getLogger("tailwise")
    root, before = logging.getLogger(), (ours.level, list(ours.handlers))
    others, root.handlers = root.handlers, []
    try:
        with visible():
            for text in ("one", "too soon"):
                logging.getLogger("tailwise.training").info(text)
            ours.warning("important")
    finally:
        root.handlers = others
    assert capsys.readouterr().err.splitlines() == ["one", "important"]
    assert (ours.level, ours.handlers) == before


def test_a_log_of_the_users_own_gets_every_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="tailwise"), visible():
        for text in ("one", "two"):
            logging.getLogger("tailwise.training").info(text)
    assert caplog.messages == ["one", "two"]
