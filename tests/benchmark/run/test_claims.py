"""Claims: one process at a time, released by its end."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tailwise.benchmark.run.claims import FileClaims, PostgresClaims, waiting_for


def test_a_name_is_claimed_once_until_it_is_released(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.jsonl"
    with FileClaims(path) as ours, FileClaims(path) as theirs:
        assert ours.take("a") and not theirs.take("a")
        assert theirs.take("b") and not ours.take("b")
        ours.release("a")
        assert theirs.take("a")
    assert list(path.parent.iterdir()) == []


def test_a_dead_process_claims_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    script = (
        "import os, sys, pathlib; from tailwise.data.writing import locked\n"
        "with locked(pathlib.Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    )
    claims = FileClaims(path)
    lock = claims._lock("0" * 16)
    done = subprocess.run([sys.executable, "-c", script, str(lock)], check=False)
    assert done.returncode == -signal.SIGKILL and lock.exists()
    with claims, FileClaims(path) as other:
        assert other.take("a")
        with claims:
            pass
        assert not lock.exists() and len(list(tmp_path.iterdir())) == 1  # the claim of a process that runs
    assert list(tmp_path.iterdir()) == []


def test_waiting_ends_when_the_other_one_lets_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = FileClaims(tmp_path / "r"), FileClaims(tmp_path / "r")
    assert theirs.take("a")
    monkeypatch.setattr("time.sleep", lambda seconds: theirs.release("a"))
    with waiting_for(ours, "a"):
        assert not theirs.take("a")
    assert theirs.take("a")


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ImportError, match=r"pip install 'tailwise\[postgres\]'"):
        PostgresClaims("postgresql://nobody@localhost/none")
