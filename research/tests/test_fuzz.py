"""A part of `make fuzz`: attacked models are refused with an error that names the file."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from research.studies import fuzz

SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in fuzz.NAMES if name != "plain"]


@pytest.mark.parametrize("name", ["plain", *SLOW])
def test_attacks_are_refused_and_mutations_load_or_are_refused(name: str, tmp_path: Path) -> None:
    source, path = fuzz.sound(name, tmp_path), tmp_path / "m.tailwise"

    def found(content: bytes) -> str:
        path.write_bytes(content)
        return fuzz.tried(lambda: fuzz.try_model(path, source.rows), path.name)

    assert found(source.data) == "loads"
    mutations = [fuzz.mutated(source, np.random.default_rng([7, number])) for number in range(25)]
    files = [*list(fuzz.attacks(name, source))[::2], *(("mutated", of, fuzz.EITHER) for of in mutations)]
    outcomes = [(words, found(content), allowed) for words, content, allowed in files]
    assert [case for case in outcomes if case[1] not in case[2]] == []


def test_what_counts_as_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise KeyError("x")

    monkeypatch.setattr(fuzz, "MEMORY", 200_000_000)
    monkeypatch.setattr(fuzz, "SECONDS", 60)  # a slow machine writes memory slowly
    secret, path = tmp_path / "secret", tmp_path / "m.tailwise"
    for attempt, failure in (
        (broken, "KeyError: 'x'"),
        (lambda: int("x"), "unclear message"),
        (lambda: secret.open("w"), "Forbidden: opened"),
        (lambda: os.system("true"), "Forbidden: os.system"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "the process ended with status 11"),
        (lambda: np.ones(50_000_000), "took 0.4 GB"),
        (lambda: path.write_text("x"), "loads"),
    ):
        assert fuzz.alone(attempt, path)[0].startswith(failure)
    assert not secret.exists()
    monkeypatch.setattr(fuzz, "WAIT", 1)
    assert fuzz.alone(signal.pause, path)[0] == "the process ended with status 9"
