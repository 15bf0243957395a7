"""Training in the workers of Ray: one that dies is replaced, and what is wrong is said at once."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
import torch

from tailwise.training import ray_workers
from tailwise.training.ray_workers import RayWorkers
from tests.training.small_models import X, Y, vir


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_workers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'tailwise\[ray\]'"):
        RayWorkers().fit(vir(), (X, Y))


@pytest.mark.parametrize("address", ["nowhere", "host:port", ""])
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


STORY = dedent(
    """
    import os, signal, sys, time
    from pathlib import Path

    import ray
    import torch

    from tailwise.training.loop import NonFiniteLossError, fit
    from tailwise.training.ray_workers import RayWorkers
    from tests.training.small_models import VALID, X, Y, settings, vir

    class Rows:
        row_count = len(Y)

        def __init__(self, folder):
            self.folder, self.epochs = folder, 0

        def fingerprint(self):
            return "in order"

        def shard(self, number, shards, size, seed):
            self.epochs += 1
            for k, rows in enumerate(torch.arange(len(Y))[number::shards].split(size)):
                died = Path(self.folder or ".", "died")
                if self.folder and (number, self.epochs, k) == (1, 2, 1) and not died.exists():
                    died.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                yield X[rows], Y[rows]

    class Stopping(Rows):  # one worker sends Ctrl-C to the program
        def shard(self, number, shards, size, seed):
            for batch in super().shard(number, shards, size, seed):
                yield batch
                if (number, self.epochs) == (0, 2):
                    os.kill(self.program, signal.SIGINT)
                    Path(self.place, "signalled").touch()
                    time.sleep(60)

    def stopped(workers, place):
        rows = Stopping(None)
        rows.program, rows.place = os.getpid(), place
        try:
            workers.fit(vir(), rows, VALID, settings())
        except KeyboardInterrupt:
            return time.time() - Path(place, "signalled").stat().st_mtime

    class Infinite(Rows):  # the rows of one worker give a loss that is not finite
        def shard(self, number, shards, size, seed):
            for x, y in super().shard(number, shards, size, seed):
                yield x, y / (1 - number)

    if __name__ == "__main__":
        alone, together, workers = vir(), vir(), RayWorkers(workers=2)
        runs = [fit(alone, Rows(None), VALID, settings(shards=2))]
        with workers.connected():
            squares = workers.map(lambda number: number**2, [2, 3])
            runs.append(workers.fit(together, Rows(sys.argv[1]), VALID, settings()))
            seconds = stopped(workers, sys.argv[1])
            try:
                workers.fit(vir(), Infinite(None), VALID, settings())
            except NonFiniteLossError as error:
                failed = [error.epoch, error.step, len(error.rows) > 0]
        torch.save(
            {
                "squares": squares,
                "failed": failed,
                "seconds": seconds,
                "states": [alone.state_dict(), together.state_dict()],
                "histories": [run.history for run in runs],
            },
            Path(sys.argv[1], "found.pt"),
        )
    """
)


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced_and_changes_no_number(tmp_path: Path) -> None:
    """It dies in its second epoch. The model is that of one process that works on both shards."""
    pytest.importorskip("ray")
    script = tmp_path / "story.py"
    script.write_text(STORY)
    root = Path(__file__).parents[2]
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV_"))}
    run = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        cwd=root,
        env={**outside, "PYTHONPATH": f"{root / 'src'}:{root}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert (tmp_path / "died").exists()
    found = torch.load(tmp_path / "found.pt", weights_only=True)
    assert found["squares"] == [4, 9]
    assert found["failed"] == [1, 1, True]
    assert found["seconds"] < 20  # Ray's own handler waits for a minute and more
    alone, together = found["histories"]
    assert len(together) == len(alone) == 3
    for one, two in zip(alone, together, strict=True):
        assert {**two, "seconds": 0.0} == pytest.approx({**one, "seconds": 0.0}, rel=1e-5)
    for name, value in found["states"][0].items():
        torch.testing.assert_close(found["states"][1][name], value, rtol=1e-5, atol=1e-6, msg=name)
