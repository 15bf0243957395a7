"""The stories of examples run from their CSV to their report."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = {"abalone_age": None, "delivery_times": "deliveries", "hotel_prices": "hotel_rates"}


def test_every_story_is_run_here() -> None:
    assert {p.parent.name for p in (ROOT / "examples").glob("*/run.sh")} == set(EXAMPLES)
    assert all((ROOT / "examples" / name / "README.md").exists() for name in EXAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(EXAMPLES))
def test_story(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if EXAMPLES[name] is not None:
        table = request.getfixturevalue("data_root") / "tabular" / f"{EXAMPLES[name]}.csv.gz"
        if not table.exists():
            pytest.skip(f"{table} is missing")
    folder = tmp_path / "my-folder"  # as the stories name it: the script makes it
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    settings = {
        "PYTHONPATH": path,
        "PYTHON": sys.executable,
        "EPOCHS": "1",
        "SEEDS": "1",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        ["bash", str(ROOT / "examples" / name / "run.sh"), str(folder)],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    pages = list(folder.glob("*.html"))
    assert pages and all("Verdict" in page.read_text(encoding="utf-8") for page in pages)
