"""One training loop for every method.

`fit(model, train, valid)` trains a `tailwise.networks.network.Network`; the loop knows nothing
about methods. Tensors move to the device once and are batched there by index.
"""

from __future__ import annotations

import copy
import io
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tailwise.distributions.members import Distribution
from tailwise.metrics.regions import get_metric
from tailwise.networks.draws import drawing_from, seeded_weights
from tailwise.networks.network import Network
from tailwise.networks.ranks import (
    gathered,
    on_first,
    rank_and_ranks,
    share_weights,
)
from tailwise.options import AnyNumber, Count
from tailwise.training.batches import (
    Batch,
    Data,
    Sharded,
    TrainingRows,
    as_data,
    finite_rows,
    predict_batches,
)
from tailwise.training.batches import TensorData as TensorData
from tailwise.training.batches import predict as predict
from tailwise.training.config import TrainConfig as TrainConfig
from tailwise.training.config import learning_rate, training_device
from tailwise.training.steps import GraphedStep, Optimizer, TrainingStep, autocast, fast_kernels
from tailwise.writing import write_atomically

logger = logging.getLogger(__name__)
CHECKPOINT_VERSION = 3
_SMALL_NETWORK = 500_000  # parameters
_STEPS_IN_FLIGHT = 4  # steps whose flags a GPU may still compute while the next ones are queued
_SECONDS_BETWEEN = 1.0  # lines of training
OnEpoch = Callable[[dict[str, float], int], None]
"""Is called with the figures of a finished epoch, and the best epoch so far."""


class NonFiniteLossError(RuntimeError):
    """A loss or gradient was not finite; the model has the weights from before that step."""

    def __init__(self, message: str, *, epoch: int = 0, step: int = 0, rows: Sequence[int] = ()) -> None:
        super().__init__(message)  # an error that another process raised gets the other fields afterwards
        self.epoch, self.step, self.rows = epoch, step, list(rows)


@dataclass
class FitResult:
    """The history of training, one row of figures per epoch, and the epoch with the best score.

    The model has the weights of `best_epoch`.
    """

    history: list[dict[str, AnyNumber]] = field(default_factory=list)
    monitor: str = ""
    best_epoch: Count = 0
    best_score: AnyNumber = math.nan
    stopped_early: bool = False


def fit(
    model: Network,
    train: Data,
    valid: Data | None = None,
    config: TrainConfig | None = None,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    on_epoch: OnEpoch | None = None,
    title: str = "",
) -> FitResult:
    """Train a model in place and return the history.

    `train` and `valid` are ``(x, y)`` tensors, a `TensorData`, or an iterable of ``(x, y)`` batches
    such as a `DataLoader`. Both forms may continue with a weight and an offset, ``(x, y, weight, offset)``,
    either of which may be None; the offset is for a model built with ``offset=True``. With `valid`, the
    model ends with the weights of the epoch that has the best `monitor`. With `checkpoint`, the state is
    saved to that file after every epoch; if the file exists, training continues from it and gives the same
    numbers as an uninterrupted run. The caller's random state does not change. Networks of this package that
    train on tensors draw from a generator of their own, so several threads may fit at the same time.

    In each of several processes that `torch.distributed` has connected, a call trains one model on the rows
    of all. Tensors must be the same in all of them: each process takes its share of every batch. `Sharded`
    data, such as a stream, gives each process its shards. Only rank 0 writes and reads the checkpoint.

    The log ``tailwise.training`` gets a line after the first epoch and after each tenth of the epochs, which
    starts with `title`.
    `on_epoch` is called with the figures of every epoch, in every process.
    """
    config = config or TrainConfig()
    device = training_device(config.accelerator)
    cuda = [device] if device.type == "cuda" else []
    generator = torch.Generator() if _draws_its_own(model, train, valid, device) else None
    with (
        torch.random.fork_rng(devices=cuda) if generator is None else drawing_from(generator),
        one_thread() if takes_one_thread(model, device) else nullcontext(),
        fast_kernels(config, device),
    ):
        try:
            return _Loop(model, train, valid, config, device, checkpoint, generator, title).run(on_epoch)
        except torch.OutOfMemoryError as error:
            raise RuntimeError(
                f"the GPU has not enough memory for batches of {config.batch_size} rows: use a smaller "
                "batch_size, a smaller network, smaller pictures, or the CPU"
            ) from error


def takes_one_thread(model: Network, device: torch.device) -> bool:
    """Whether a network trains on one thread, since more are no faster."""
    return device.type == "cpu" and sum(p.numel() for p in model.parameters()) < _SMALL_NETWORK


def _draws_its_own(model: Network, train: Data, valid: Data | None, device: torch.device) -> bool:
    """Whether nothing in training draws from torch's own generator, as loaders and a GPU's kernels do."""
    rows = all(data is None or isinstance(data, TensorData | Sharded | tuple) for data in (train, valid))
    changed = isinstance(train, TensorData) and train.transform is not None
    return device.type == "cpu" and model.draws_its_own and rows and not changed


class _Loop:
    def __init__(
        self,
        model: Network,
        train: Data,
        valid: Data | None,
        config: TrainConfig,
        device: torch.device,
        checkpoint: str | os.PathLike[str] | None,
        generator: torch.Generator | None,
        title: str,
    ) -> None:
        self.model, self.config, self.device, self.generator = model, config, device, generator
        self.title = title
        self.rank, self.ranks = rank_and_ranks()
        self.shards = config.shards or self.ranks
        if self.shards < self.ranks:
            raise ValueError(f"{self.ranks} processes cannot share {self.shards} shards: raise shards")
        self.rows = TrainingRows(as_data(train, device), config.batch_size, self.shards, device)
        watched = None if valid is None else as_data(valid, device)
        if isinstance(watched, Sharded):
            raise TypeError("validation rows cannot come in shards: give tensors or a loader")
        self.valid = watched
        self.metric = get_metric(config.monitor)
        model.to(device)
        share_weights(model)
        self.optimizer = Optimizer(model, config, device)
        kind = GraphedStep if config.graphs and device.type == "cuda" and self.shards == 1 else TrainingStep
        self.step = kind(model, self.optimizer, config, device, self.shards)
        self.result, self.best_loss = FitResult(monitor=config.monitor), math.inf
        self.best_state: dict[str, Tensor] | None = None
        self.start = 0
        self.pending: deque[tuple[int, Sequence[Batch], Tensor, torch.cuda.Event | None]] = deque()
        self.buffers: dict[str, Tensor] = {}
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        if self.checkpoint is not None:
            sources = {"training data": self.rows.data, "validation data": watched}
            self.settings = _settings_of(config, model, sources)
            self._load(self.checkpoint)

    def run(self, on_epoch: OnEpoch | None) -> FitResult:
        result, config = self.result, self.config
        for epoch in range(self.start, config.epochs):
            if self.valid is not None and config.patience is not None and not self.model.more_to_come:
                result.stopped_early = epoch - result.best_epoch >= config.patience
            if result.stopped_early:
                break
            began = time.perf_counter()
            shared = self._seed(epoch)  # all ranks must draw the same numbers in `begin_epoch`
            with seeded_weights(shared):
                changed = self.model.begin_epoch(epoch / config.epochs)
            if changed:
                self.best_loss = math.inf
            self.step.begin(changed=changed)
            self._seed(epoch, at=1 + self.rank)
            row = {"epoch": float(epoch + 1), **self._train_epoch(epoch, shared)}
            if self.valid is not None:
                row[config.monitor] = self._validate()
                self._keep_best(epoch, row[config.monitor])
            row["seconds"] = time.perf_counter() - began
            result.history.append(row)
            if self.checkpoint is not None:
                self._save(self.checkpoint, epoch + 1)
            self._log(row)
            if on_epoch is not None:
                on_epoch(row, result.best_epoch)
        if self.model.more_to_come:
            logger.warning(
                "training ended after %d epochs, before its second stage: lower schedule.start or train for "
                "more epochs",
                len(result.history),
            )
        if self.best_state is not None:
            self.model.load_state_dict(self.best_state)
        else:
            result.best_epoch = result.best_epoch or len(result.history)
        self.model.eval()
        return result

    def _log(self, row: dict[str, float]) -> None:
        """Log an epoch, if it is the first one or ends a tenth of the epochs."""
        epoch, epochs, monitor = int(row["epoch"]), self.config.epochs, self.config.monitor
        if self.rank == 0 and (epoch == 1 or 10 * epoch // epochs > 10 * (epoch - 1) // epochs):
            line = f"{self.title}epoch {epoch}/{epochs}  loss {row['loss']:.4g}"
            if monitor in row:
                best = self.result.best_epoch
                line += f"  {monitor.replace('_', ' ')} {row[monitor]:.4g} (best: {best})"
            logger.info("%s", line)

    def _seed(self, *key: int, at: int = 0) -> int:
        """Seed what is drawn next by the configured seed and a key; return the seed.

        It depends on nothing else, so checkpoints need not store the state of a generator.
        """
        source = np.random.SeedSequence((self.config.seed, *key))
        seed = int(source.generate_state(at + 1, np.uint64)[at])
        if self.generator is not None:
            self.generator.manual_seed(seed)
            return seed
        torch.default_generator.manual_seed(seed)
        if self.device.type != "cpu":
            torch.get_device_module(self.device).manual_seed(seed)
        return seed

    def _train_epoch(self, epoch: int, seed: int) -> dict[str, float]:
        self.model.train()
        steps, rows, length = 0, 0, self.rows.steps()
        weights, state = dict(self.model.named_parameters()), self.model.state_dict()
        self.buffers = copy.deepcopy({name: value for name, value in state.items() if name not in weights})
        running = self.rows.epoch(seed)
        while True:
            shards = next(running, [])
            if not shards and self.ranks == 1:
                break
            self.optimizer.set_lr(learning_rate(epoch + steps / length if length else epoch, self.config))
            if not self.step(shards, partial(self._seed, epoch, steps)):
                break
            self._watch(epoch, steps, [batch for _, batch in shards])
            rows += sum(len(batch.y) for _, batch in shards)
            steps += 1
        self._raise_if_failed(epoch, waiting=0)
        if steps == 0:
            raise ValueError("the training data has no batch: the loader is empty or exhausted")
        self.model.end_epoch()
        return _averaged({name: float(total) for name, total in self.step.sums.items()}, rows)

    def _watch(self, epoch: int, step: int, shards: Sequence[Batch]) -> None:
        """Raise an error if a step has failed; on a GPU, some steps later, so that it is not waited for."""
        flag, event = self.step.failed.to("cpu", non_blocking=True, copy=True), None
        if self.device.type == "cuda":
            event = torch.cuda.Event()
            event.record()
        self.pending.append((step, shards, flag, event))
        self._raise_if_failed(epoch, waiting=_STEPS_IN_FLIGHT if event else 0)

    def _raise_if_failed(self, epoch: int, waiting: int) -> None:
        """Read the flags of all but the last `waiting` steps, which may still run on a GPU."""
        while len(self.pending) > waiting:
            step, batches, failed, event = self.pending.popleft()
            if event is not None:
                event.synchronize()
            if failed:
                with autocast(self.config, self.device):
                    error = explain_step(self.model, batches, epoch + 1, step + 1)
                # The running statistics include the bad batch: restore those from the epoch's start.
                self.model.load_state_dict(self.buffers, strict=False)
                raise error

    @torch.no_grad()
    def _validate(self) -> float:
        assert self.valid is not None
        size, share = 4 * self.config.batch_size, (self.rank, self.ranks)
        if isinstance(self.valid, TensorData):  # a batch for each shard, so that no rank waits for another
            size = min(size, -(-len(self.valid) // self.shards))
        with autocast(self.config, self.device):
            prediction, y = predict_batches(self.model, self.valid, size, self.device, share)
        if not prediction.mean.isfinite().all():
            raise ValueError(self._bad_predictions(prediction))
        score = self.model.score(self.metric, prediction, y)
        if math.isnan(score) and self.metric.region != "all":
            raise ValueError(
                f"monitor {self.config.monitor!r} is undefined: the validation data has too few labels of "
                "that region; choose another monitor or another split"
            )
        return on_first(lambda: score)  # all ranks must stop at the same epoch, whatever they round to

    def _bad_predictions(self, prediction: Distribution) -> str:
        bad = int((~finite_rows(prediction.mean)).sum())
        message = f"predictions of {bad} of {len(prediction)} validation rows are not finite"
        inputs = (self.valid.x, self.valid.offset) if isinstance(self.valid, TensorData) else ()
        for name, values in zip(("inputs", "offsets"), inputs, strict=False):
            if values is not None and not (finite := finite_rows(values)).all():
                row = int(finite.to(torch.int8).argmin())
                some = f"{name} of row {row} are not finite ({int((~finite).sum())} such rows)"
                return f"{message}: {some}; impute or drop them"
        return f"{message}: impute or drop rows with inputs that are not finite, or lower the learning rate"

    def _keep_best(self, epoch: int, score: float) -> None:
        loss = self.metric.loss(score)
        if loss < self.best_loss or self.result.best_epoch == 0:
            self.best_loss = loss
            self.result.best_epoch, self.result.best_score = epoch + 1, score
            self.best_state = copy.deepcopy(dict(self.model.state_dict()))

    # -- checkpoints -------------------------------------------------------------------------

    def _save(self, path: Path, epoch: int) -> None:
        state = {
            "settings": self.settings,
            "epoch": epoch,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state,
            "best": {"loss": self.best_loss, "state": self.best_state},
            "result": asdict(self.result),
        }
        if self.rank == 0:
            content = io.BytesIO()  # to a file on a full disk, torch would raise an error without its name
            torch.save(state, content)
            write_atomically(path, lambda part: part.write_bytes(content.getbuffer()))

    def _load(self, path: Path) -> None:
        state = on_first(lambda: _read_checkpoint(path, self.settings) if path.exists() else None)
        if state is None:
            return
        try:
            self.model.load_state_dict(state["model"])
        except RuntimeError as error:
            raise ValueError(f"{path} was trained with another network: {error!s:.200}") from error
        self.optimizer.load_state(state["optimizer"])
        self.start, self.result = state["epoch"], FitResult(**state["result"])
        self.best_loss, self.best_state = state["best"]["loss"], state["best"]["state"]


def _settings_of(config: TrainConfig, model: Network, sources: Mapping[str, Any]) -> dict[str, str]:
    """Return what must not change when a run is resumed; the rows of loaders are not checked."""
    free = {"epochs", "patience", "accelerator", "graphs"}
    bins, method = model.bins, model.method
    if config.schedule == "cosine" or method.schedule is not None:
        free.remove("epochs")
    return {
        "checkpoint version": str(CHECKPOINT_VERSION),
        **{f.name: repr(getattr(config, f.name)) for f in fields(config) if f.name not in free},
        **{f"method {name}": repr(value) for name, value in method.as_options().items()},
        **{
            name: data.fingerprint()
            for name, data in sources.items()
            if isinstance(data, TensorData | Sharded)
        },
        "bins": f"{len(bins)} from {bins.edges[0]:.9g} to {bins.edges[-1]:.9g}",
        "bin edges": " ".join(f"{edge:.9g}" for edge in bins.edges),
        "training labels per bin": " ".join(map(str, bins.counts)),
    }


def _read_checkpoint(path: Path, settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the state in a checkpoint; one with other settings is an error."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        before = state["settings"]
    except Exception as error:
        raise ValueError(
            f"{path} is not a tailwise checkpoint ({type(error).__name__}); delete it or name another file"
        ) from error
    for name, value in settings.items():
        if before.get(name) != value:
            raise ValueError(
                f"{path} was trained with {name} = {before.get(name)!s:.60}, not {value:.60}: "
                "resume with the same data and settings, or delete it to start over"
            )
    return state


def _averaged(sums: dict[str, float], rows: int) -> dict[str, float]:
    """Divide sums over this rank's rows by the rows, those of all ranks together."""
    everywhere = gathered((sums, rows))
    number = sum(rows for _, rows in everywhere)
    names = dict.fromkeys(name for of_rank, _ in everywhere for name in of_rank)
    return {name: sum(of_rank.get(name, 0.0) for of_rank, _ in everywhere) / number for name in names}


# -- losses that are not finite ------------------------------------------------------------------


def explain_step(model: Network, step: Sequence[Batch], epoch: int, number: int) -> NonFiniteLossError:
    """Return the error of the first batch of a step, on any rank, that has rows to name."""
    reasons = [_reason(model, batch) for batch in step]
    everywhere = [reason for rank in gathered(reasons) for reason in rank]
    reason, rows = next((reason for reason in everywhere if reason[1]), everywhere[0])
    message = f"the loss is not finite in epoch {epoch}, step {number}{reason}"
    return NonFiniteLossError(message, epoch=epoch, step=number, rows=rows)


@torch.no_grad()
def _reason(model: Network, batch: Batch) -> tuple[str, list[int]]:
    """Return why a loss of a batch is not finite and what to do about it, and the rows behind it."""
    losses = model.row_losses(batch.x, batch.y, batch.offset)
    parts = [name for name, value in losses.items() if not value.isfinite().all()]
    part = f" (part: {', '.join(parts)})" if parts else ""
    numbers = torch.arange(len(batch.y)) if batch.rows is None else batch.rows.cpu()
    for values, cause in (
        (batch.y, "their labels are not finite; drop or fill them"),
        (batch.x, "their inputs are not finite; impute or drop them"),
        (batch.sample_weight, "their sample_weight is not finite"),
        (batch.offset, "their offset, the base prediction, is not finite"),
        (
            torch.stack(list(losses.values()), 1).reshape(len(batch.y), -1),
            "inputs and labels are finite; lower the learning rate, or set clip_norm",
        ),
    ):
        rows = [] if values is None else numbers[~finite_rows(values).cpu()].tolist()
        if rows:
            where = "rows of the batch" if batch.rows is None else "training rows"
            shown = ", ".join(map(str, rows[:5])) + (f" and {len(rows) - 5} more" if len(rows) > 5 else "")
            return f"{part}; {where} {shown}: {cause}", rows
    return f"{part}: each loss is finite but a gradient is not; lower the learning rate, or set clip_norm", []


# -- around training -----------------------------------------------------------------------------


class _OneThread:
    """The number of torch's threads is one for the process: the last of several fits restores it."""

    def __init__(self) -> None:
        self.lock, self.inside, self.before = threading.Lock(), 0, 1

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Let torch compute on one thread.

        More are no faster for small networks, stall on a busy machine, and round differently.
        """
        with self.lock:
            self.inside += 1
            if self.inside == 1:
                self.before = torch.get_num_threads()
            torch.set_num_threads(1)
        try:
            yield
        finally:
            with self.lock:
                self.inside -= 1
                if self.inside == 0:
                    torch.set_num_threads(self.before)


one_thread = _OneThread()


@contextmanager
def visible() -> Iterator[None]:
    """Print the lines of training to standard error, at most one per second, unless logging is set up."""
    ours = logging.getLogger("tailwise")
    if ours.hasHandlers() and ours.isEnabledFor(logging.INFO):
        yield
        return
    handler, level, passed = logging.StreamHandler(), ours.level, -math.inf

    def due(record: logging.LogRecord) -> bool:
        nonlocal passed
        if record.levelno > logging.INFO or record.created - passed >= _SECONDS_BETWEEN:
            passed = record.created
            return True
        return False

    handler.addFilter(due)
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        ours.removeHandler(handler)
        ours.setLevel(level)
