"""A part of `make fuzz`: attacked models are refused with an error that names the file."""

from __future__ import annotations

import importlib.util
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "research" / "studies" / "fuzz.py"


@pytest.fixture(scope="module")
def fuzz() -> Any:
    spec = importlib.util.spec_from_file_location("fuzz", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name",
    ["plain", *(pytest.param(n, marks=pytest.mark.slow) for n in ("text", "catboost", "lightgbm", "linear"))],
)
def test_attacks_are_refused_and_mutations_load_or_are_refused(fuzz: Any, name: str, tmp_path: Path) -> None:
    source, path, wrong = fuzz.sound(name, tmp_path), tmp_path / "m.tailwise", {}

    def found(content: bytes) -> str:
        path.write_bytes(content)
        return fuzz.tried(lambda: fuzz.try_model(path, source.rows), path.name)  # type: ignore[no-any-return]

    assert found(source.data) == "loads"
    for attack, content, allowed in fuzz.attacks(name, source):
        if (what := found(content)) not in allowed:
            wrong[attack] = what
    for number in range(25):
        what = found(fuzz.mutated(source, np.random.default_rng([7, number])))
        if what not in ("loads", "refused"):
            wrong[number] = what
    assert wrong == {}


def test_what_counts_as_a_failure(fuzz: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise KeyError("x")

    def unclear() -> None:
        raise ValueError("no name")

    monkeypatch.setattr(fuzz, "MEMORY", 200_000_000)
    secret, path = tmp_path / "secret", tmp_path / "m.tailwise"
    for attempt, failure in (
        (broken, "KeyError: 'x'"),
        (unclear, "unclear message: 'no name'"),
        (lambda: secret.open("w"), "Forbidden: opened"),
        (lambda: os.system("true"), "Forbidden: os.system"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "the process ended with status 11"),
        (lambda: np.ones(50_000_000), "took 0.4 GB"),
    ):
        assert fuzz.alone(attempt, path)[0].startswith(failure)
    assert fuzz.alone(lambda: path.write_text("x"), path)[0] == "loads" and not secret.exists()
    monkeypatch.setattr(fuzz, "WAIT", 1)
    assert fuzz.alone(signal.pause, path)[0] == "the process ended with status 9"
