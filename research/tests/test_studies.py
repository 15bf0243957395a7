"""Every script of research/studies can be imported: names that moved are found without a run of hours."""

import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "studies"


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_a_script_is_imported(name: str) -> None:
    assert (importlib.import_module(f"research.studies.{name}").__doc__ or "").strip()
