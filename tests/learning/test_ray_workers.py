"""Training in the workers of Ray: one that dies is replaced, and what is wrong is said at once."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tailwise.learning import ray_workers
from tailwise.learning.loop import NonFiniteLossError, fit
from tailwise.learning.ray_workers import RayWorkers, _described, _error, _lost_another
from tests.learning.small_models import VALID, X, Y, settings, vir, weights


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_workers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'tailwise\[ray\]'"):
        RayWorkers().fit(vir(), (X, Y))


@pytest.mark.parametrize("address", ["nowhere", "host:port", "a:99999999", ""])
def test_what_is_no_address_is_an_error(address: str) -> None:
    with (
        pytest.raises(ValueError, match=r"is not the address of a Ray cluster: name host:port"),
        RayWorkers(address=address).connected(),
    ):
        pass


def test_an_address_where_nothing_listens_is_an_error_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with (
        pytest.raises(ConnectionError, match=rf"no Ray cluster answers at '127.0.0.1:{port}' .*refused"),
        RayWorkers(address=f"127.0.0.1:{port}").connected(),
    ):
        pass


def test_too_few_rows_or_workers_are_errors() -> None:
    with pytest.raises(ValueError, match="2 training rows cannot be shared by 3 workers: ask for fewer"):
        RayWorkers(workers=3).fit(vir(), (X[:2], Y[:2]))
    with pytest.raises(ValueError, match="workers must be positive, got 0"):
        RayWorkers(workers=0)


class _Cluster:
    """What a connected Ray tells about its machines."""

    def __init__(self, **resources: float) -> None:
        self.resources = resources

    def is_initialized(self) -> bool:
        return bool(self.resources)

    def cluster_resources(self) -> dict[str, float]:
        return self.resources


def test_workers_fit_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(**resources: float) -> RayWorkers:
        monkeypatch.setattr(ray_workers, "_ray", lambda: _Cluster(**resources))
        return RayWorkers.of_cluster()

    assert of(CPU=8.0) == RayWorkers(workers=7)
    assert of(CPU=1.0) == RayWorkers(workers=1)
    assert of(CPU=64.0, GPU=4.0) == RayWorkers(workers=4, gpus=True)
    assert of() == RayWorkers()
    of(CPU=2.0)
    with (
        pytest.raises(ValueError, match="3 workers need a CPU each, but the Ray cluster has 2"),
        RayWorkers(workers=3).connected(),
    ):
        pass


def test_an_error_of_a_worker_is_raised_again() -> None:
    lost = NonFiniteLossError("the loss is not finite", epoch=2, step=3, rows=[7])
    again = _error(_described(lost))
    assert isinstance(again, NonFiniteLossError)
    assert (str(again), again.epoch, again.step, again.rows) == (str(lost), 2, 3, [7])
    for error in (ValueError("a"), TypeError("b"), MemoryError("c"), RuntimeError("d")):
        again = _error(_described(error))
        assert (type(again), str(again)) == (type(error), str(error))
    assert str(_error(_described(KeyError("e")))) == "'e'"


def test_only_a_lost_connection_asks_for_new_workers() -> None:
    assert _lost_another(RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer"))
    assert not _lost_another(ValueError("the training data has no batch"))


@pytest.fixture(scope="module")
def workers() -> Iterator[RayWorkers]:
    pytest.importorskip("ray")
    two = RayWorkers(workers=2)
    with two.connected():
        yield two


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_and_changes_no_number(workers: RayWorkers, tmp_path: Path) -> None:
    """It dies in its second epoch. The model is that of one process that works on both shards."""

    class Rows:
        row_count = len(Y)

        def __init__(self, deadly: bool) -> None:
            self.deadly, self.epochs = deadly, 0

        def shard(self, number: int, shards: int, size: int, seed: int) -> Iterator[Any]:
            self.epochs += 1
            for k, rows in enumerate(torch.arange(len(Y))[number::shards].split(size)):
                if self.deadly and (number, self.epochs, k) == (1, 2, 1) and not (tmp_path / "died").exists():
                    (tmp_path / "died").touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                yield X[rows], Y[rows]

    alone, together = vir(), vir()
    want = fit(alone, Rows(False), VALID, settings(shards=2))
    got = workers.fit(together, Rows(True), VALID, settings())
    assert (tmp_path / "died").exists()
    assert len(got.history) == len(want.history) == 3
    for one, two in zip(want.history, got.history, strict=True):
        assert {**two, "seconds": 0.0} == pytest.approx({**one, "seconds": 0.0}, rel=1e-5)
    for name, value in weights(alone).items():
        if not name.endswith("_extra_state"):
            torch.testing.assert_close(weights(together)[name], value, rtol=1e-5, atol=1e-6, msg=name)
