"""A limit on addresses: libraries reserve less, and one that is too small is an error at once."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tailwise.cli import addresses
from tailwise.cli.addresses import check_addresses, check_model, reserve_less

resource = pytest.importorskip("resource")
NAMES = ("ARROW_DEFAULT_MEMORY_POOL", "MALLOC_ARENA_MAX", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set the limit in GB, on a machine with two processors."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)

    def set_limit(gigabytes: float) -> None:
        monkeypatch.setattr(resource, "getrlimit", lambda kind: (int(gigabytes * 1e9), int(gigabytes * 1e9)))

    return set_limit


class Library:
    """The C library, or one that lacks a function."""

    def __init__(self, *names: str) -> None:
        self.calls: list[tuple[int, int]] = []
        if names:
            self.mallopt = lambda *options: self.calls.append(options)


def test_libraries_reserve_less_under_a_limit(limit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library("mallopt")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    reserve_less()  # no limit
    limit(addresses.PLENTY / 1e9)
    reserve_less()
    assert not library.calls and not any(name in os.environ for name in NAMES)
    limit(4)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    reserve_less()
    assert [os.environ[name] for name in NAMES] == ["system", "1", "7", "1"]
    assert library.calls == [(-8, 1)]
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    reserve_less()  # another C library


def test_a_limit_that_is_too_small_is_told_with_what_is_needed(limit: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.tailwise"
    path.write_text('tailwise model 4\n{"bases": [{"models": [{"CatBoost": {"borders": [3]}}]}]}')
    check_addresses(catboost=True)  # no limit
    check_model(path)
    limit(2)
    check_addresses(catboost=False)
    check_model(tmp_path / "none")  # reading it says what is wrong
    with pytest.raises(ValueError, match=r"2.0 GB \(ulimit -v\) is too small: .* 3.1 GB. Raise it, or train"):
        check_addresses(catboost=True, otherwise="or train without CatBoost")
    with pytest.raises(ValueError, match=r"3.1 GB. Raise it, or limit the memory"):
        check_addresses(catboost=True)
    with pytest.raises(ValueError, match=r"at least 3.1 GB"):
        check_model(path)
    limit(1)
    with pytest.raises(ValueError, match=r"at least 1.7 GB. Raise it, or limit the memory"):
        check_model(tmp_path / "none")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps to this limit")
def test_the_least_limit_is_enough_for_a_small_table(
    program: Any, sample: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table: pd.DataFrame = sample(300)
    table.to_csv(tmp_path / "t.csv", index=False)
    limit = addresses.NETWORK + addresses.CATBOOST + addresses._THREAD * (os.cpu_count() or 1)
    line = ["fit", "t.csv", "-t", "price", "-o", "m", "--epochs", 2, "--folds", 2, "--quiet"]
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for least, code in ((limit - 1, 1), (limit, 0)):
        process = program.start(
            *line, cwd=tmp_path, preexec_fn=lambda n=least: resource.setrlimit(resource.RLIMIT_AS, (n, n))
        )
        with process:
            said = process.stderr.read()
        assert process.returncode == code, said
        assert said.count("\n") == code  # one line, or none
    assert (tmp_path / "m").exists()
