"""Every script of benchmarks/ can be imported: names that moved are found without a run of hours."""

import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_a_script_is_imported(name: str) -> None:
    assert (importlib.import_module(f"benchmarks.{name}").__doc__ or "").strip()
