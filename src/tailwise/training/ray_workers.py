"""Training in the workers of a Ray cluster. Only this module imports Ray, and only when it is used."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from tailwise.networks.network import Network
from tailwise.networks.ranks import on_first, rank_and_ranks
from tailwise.training.batches import Data, TensorData, as_data
from tailwise.training.loop import FitResult, TrainConfig, fit

T = TypeVar("T")
R = TypeVar("R")
LOCAL = "local"
OBJECT_STORE = 500_000_000
"""Bytes of memory that a Ray started on this machine takes for what its processes share."""
_CHECKPOINT = "training.pt"
_SECONDS_TO_ANSWER = 5.0
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent anywhere
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "600",
    "RAY_worker_niceness": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@dataclass(frozen=True, kw_only=True)
class RayWorkers:
    """Workers of a Ray cluster that train one model together, each on a part of the rows.

    Parameters
    ----------
    workers : number of training processes.
    address : ``"local"`` starts Ray on this machine and stops it afterwards; ``"auto"`` finds the cluster of
        this machine; otherwise the address of a cluster, such as ``"head:6379"``. If the program has
        connected to Ray itself, that connection is used.
    gpus : whether every worker has a GPU.
    storage : folder that all machines see, or the address of a bucket, for checkpoints. On one machine it may
        be left out.
    replacements : how many times workers that die are replaced. Training continues from the last checkpoint.
    """

    workers: int = 2
    address: str = LOCAL
    gpus: bool = False
    storage: str | None = None
    replacements: int = 20

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise ValueError(f"workers must be positive, got {self.workers!r}")

    @classmethod
    def of_cluster(cls) -> RayWorkers:
        """Return a worker for each GPU of the connected cluster, or for each of its processors but one."""
        ray = _ray()
        if not ray.is_initialized():
            return cls()
        found = ray.cluster_resources()
        gpus = int(found.get("GPU", 0))
        return cls(workers=gpus or max(1, int(found.get("CPU", 1)) - 1), gpus=gpus > 0)

    def check(self) -> None:
        """Raise an error if Ray is not installed, or if nothing answers at the address."""
        _ray()
        if self.address != LOCAL:
            _check_answers(self.address)

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Connect to the cluster, and disconnect afterwards if this call made the connection."""
        ray = _ray()
        if ray.is_initialized():
            self._check_resources(ray)
            yield
            return
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if self.address == LOCAL:
            # One more than the workers: reading rows needs a processor too.
            settings |= {"num_cpus": self.workers + 1, "object_store_memory": OBJECT_STORE}
            settings |= {"include_dashboard": False, "address": LOCAL}
        else:
            self.check()
            settings |= {"address": self.address}
        try:
            with _own_handler():
                ray.init(**settings)
        except Exception as error:  # Ray raises many kinds here, bare `Exception` among them
            ray.shutdown()
            raise _unreachable(self.address, error) from error
        try:
            self._check_resources(ray)
            yield
        finally:
            ray.shutdown()

    def _check_resources(self, ray: Any) -> None:
        kind = "GPU" if self.gpus else "CPU"
        found = int(ray.cluster_resources().get(kind, 0))
        if found < self.workers:
            raise ValueError(
                f"{self.workers} workers need a {kind} each, but the Ray cluster has {found}: ask for fewer "
                "workers or add machines"
            )

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Call a function for each item, each call in a process of the cluster, and return the results."""
        ray = _ray()
        with self.connected():
            task, shared = ray.remote(num_cpus=1)(_call), ray.put(ray.cloudpickle.dumps(function))
            try:
                found = ray.get([task.remote(shared, item) for item in items])
                return [ray.cloudpickle.loads(result) for result in found]
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None  # what the function raised, without Ray's traceback
            except ray.exceptions.RayError as error:
                raise RuntimeError(f"a process of the Ray cluster failed: {_line(error)}") from error

    def fit(
        self,
        model: Network,
        train: Data,
        valid: Data | None = None,
        config: TrainConfig | None = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> FitResult:
        """Train as `tailwise.training.loop.fit` does, in the workers, and return the history.

        The result has the numbers of one process with ``TrainConfig(shards=workers)``, up to rounding. With
        `checkpoint`, the state after every epoch is in the folder of that name with ``.ray`` added, in
        `storage` if there is one; a later call continues from there.
        """
        ray = _ray()
        data = as_data(train)
        rows = len(data) if isinstance(data, TensorData) else getattr(data, "row_count", self.workers)
        if rows < self.workers:
            raise ValueError(
                f"{rows} training rows cannot be shared by {self.workers} workers: ask for fewer workers"
            )
        config = config or TrainConfig()
        config = replace(
            config,
            shards=config.shards or self.workers,
            accelerator="cuda" if self.gpus else "cpu",
            graphs=False,
        )
        with self.connected(), self._place(checkpoint) as (folder, name):
            job = (model, data, None if valid is None else as_data(valid), config)
            # As bytes: what Ray takes apart itself arrives read-only.
            state, result = self._run(ray.put(ray.cloudpickle.dumps(job)), folder, name)
        model.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in state.items()})
        model.eval()
        return FitResult(**result)

    @contextmanager
    def _place(self, checkpoint: str | os.PathLike[str] | None) -> Iterator[tuple[str, str]]:
        """Return the folder and the name of the run's checkpoints; a run that has no name starts anew.

        Without `checkpoint` and `storage`, they are removed afterwards.
        """
        if checkpoint is not None:
            path = Path(checkpoint).absolute()
            yield self.storage or str(path.parent), f"{path.name}.ray"
        elif self.storage is not None:
            yield self.storage, f"tailwise-{uuid.uuid4().hex[:12]}"
        else:
            with tempfile.TemporaryDirectory(prefix="tailwise-ray-") as folder:
                yield folder, "training"

    def _run(self, job: Any, folder: str, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Train under a name: if workers die, anew from the last checkpoint of that name."""
        import ray.train
        from ray.train.torch import TorchConfig, TorchTrainer

        class Trainer(TorchTrainer):  # type: ignore[misc]
            def _register_sigint_handler(self, controller: Any) -> None:
                """Leave Ctrl-C as it is: Ray's handler waits for the controller, which may take minutes."""

        for left in reversed(range(self.replacements + 1)):
            trainer = Trainer(
                _work,
                train_loop_config={"job": job},
                scaling_config=ray.train.ScalingConfig(
                    num_workers=self.workers,
                    use_gpu=self.gpus,
                    resources_per_worker=None if self.gpus else {"CPU": 1},
                ),
                torch_config=TorchConfig(backend="nccl" if self.gpus else "gloo"),
                run_config=ray.train.RunConfig(
                    name=name,
                    storage_path=folder,
                    checkpoint_config=ray.train.CheckpointConfig(num_to_keep=1),
                ),
            )
            try:
                found: tuple[dict[str, Any], dict[str, Any]] = trainer.fit().return_value
                return found
            except ray.train.TrainingFailedError as error:
                for failure in getattr(error, "worker_failures", {}).values():
                    if not _lost_another(failure):
                        raise failure from None
                if left == 0:
                    raise RuntimeError(
                        f"training ended: workers were replaced {self.replacements} times, or could not be "
                        f"({_line(error, -1)}); have they enough memory, is tailwise installed everywhere?"
                    ) from error
        raise AssertionError("not reached")


def _call(function: bytes, item: Any) -> bytes:
    """Call a function in a process of the cluster. As bytes: what Ray takes apart itself is read-only."""
    from ray import cloudpickle

    found: bytes = cloudpickle.dumps(cloudpickle.loads(function)(item))
    return found


# -- in a worker ---------------------------------------------------------------------------------


def _work(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Train in a worker, from the last checkpoint if there is one; return the state and the result."""
    import ray.train

    model, train, valid, config = ray.cloudpickle.loads(ray.get(settings["job"]))
    stream: Any = getattr(train, "stream", None)
    if hasattr(stream, "divided"):  # one worker opens what all of them read at the same time
        train.stream = on_first(lambda: stream.divided(rank_and_ranks()[1]))
    with tempfile.TemporaryDirectory(prefix="tailwise-worker-") as folder:
        last = ray.train.get_checkpoint()
        if last is not None:
            last.to_directory(folder)

        def report(row: dict[str, float], best_epoch: int) -> None:
            """Hand the checkpoint of an epoch to Ray, which keeps it where other workers find it."""
            kept = ray.train.Checkpoint.from_directory(folder) if rank_and_ranks()[0] == 0 else None
            ray.train.report({**row, "best_epoch": best_epoch}, checkpoint=kept)

        path = Path(folder, _CHECKPOINT)
        result = fit(model, train, valid, config, checkpoint=path, on_epoch=report)
    # Arrays: Ray returns no tensors.
    return {name: np.array(value.cpu()) for name, value in model.state_dict().items()}, asdict(result)


def _lost_another(error: Exception) -> bool:
    """Whether an error says that a worker is gone, so that new workers would do better."""
    text = f"{type(error).__module__} {error}".lower()
    return any(word in text for word in ("gloo", "nccl", "ray.", "connection", "process group"))


# -- connecting ----------------------------------------------------------------------------------


def _ray() -> Any:
    if importlib.util.find_spec("ray") is None:
        raise ImportError("training on many machines needs Ray: pip install 'tailwise[ray]'")
    import ray

    return ray


@contextmanager
def _own_handler() -> Iterator[None]:
    """Keep what the program does at SIGTERM: Ray would end it without a word."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _check_answers(address: str) -> None:
    """Raise an error at once if nothing listens at an address; Ray itself tries for a minute."""
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(
            f"{address!r} is not the address of a Ray cluster: name host:port, auto, or {LOCAL} to start one"
        )
    try:
        socket.create_connection((host, int(port)), timeout=_SECONDS_TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, error) from error


def _unreachable(address: str, error: Exception) -> ConnectionError:
    return ConnectionError(
        f"no Ray cluster answers at {address!r} ({_line(error)}): start one with `ray start --head`, or use "
        f"{LOCAL!r} for this machine, which needs memory and time to start it"
    )


def _line(error: Exception, number: int = 0) -> str:
    """Return a line of an error's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[number][:300]
