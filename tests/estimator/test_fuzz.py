"""A small part of `make fuzz`: mutated models load or are refused with an error that names the file."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailwise import TailRegressor
from tailwise.data.tables.columns import split_targets
from tailwise.data.tables.files import read_table

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "fuzz.py"


@pytest.fixture(scope="module")
def fuzz() -> Any:
    spec = importlib.util.spec_from_file_location("fuzz", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("which", ["saved", "saved_boosted", "saved_mixed"])
def test_mutated_models_load_or_are_refused(
    fuzz: Any, which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    source: Path = request.getfixturevalue(which)
    data, members, path = source.read_bytes(), fuzz.members_of(source), tmp_path / "m.tailwise"
    found = set()
    for number in range(10 if which == "saved_mixed" else 25):  # texts take long to load
        path.write_bytes(fuzz.mutated(data, members, np.random.default_rng([7, number])))
        found.add(fuzz.tried(lambda: TailRegressor.load(path), path.name))
    assert "refused" in found and found <= {"loads", "refused"}


def test_malformed_tables_are_read_or_refused(fuzz: Any, tmp_path: Path) -> None:
    found = set()
    for number in range(60):
        path = tmp_path / f"t{number}.csv"
        path.write_bytes(fuzz.malformed(number, np.random.default_rng([7, number])))
        found.add(fuzz.tried(lambda p=path: split_targets(read_table(p), ["price"], str(p)), path.name))
    assert found == {"loads", "refused"}


def test_what_counts_as_a_failure(fuzz: Any) -> None:
    def broken() -> None:
        raise KeyError("x")

    def unclear() -> None:
        raise ValueError("no name")

    assert fuzz.tried(broken, "m") == "KeyError: 'x'"
    assert fuzz.tried(unclear, "m.tailwise").startswith("unclear message")
