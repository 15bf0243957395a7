"""The stories of examples run from their CSV to their report."""

import gzip
import itertools
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = {"abalone_age": None, "delivery_times": "deliveries", "hotel_prices": "hotel_rates"}
ROWS = 1500  # of each table: the stories show commands, and accuracy is measured elsewhere


def test_every_story_is_run_here() -> None:
    assert {p.parent.name for p in (ROOT / "examples").glob("*/run.sh")} == set(EXAMPLES)
    assert all((ROOT / "examples" / name / "README.md").exists() for name in EXAMPLES)


def shorten(table: Path, root: Path) -> None:
    """Write the first rows of a table below another root, or skip the test."""
    if not table.exists():
        pytest.skip(f"{table} is missing")
    (root / "tabular").mkdir(parents=True)
    with gzip.open(table, "rt") as whole, gzip.open(root / "tabular" / table.name, "wt") as short:
        short.writelines(itertools.islice(whole, ROWS + 1))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(EXAMPLES))
def test_story(
    name: str, short_processes: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    root = tmp_path / "data"
    if EXAMPLES[name] is not None:
        shorten(request.getfixturevalue("data_root") / "tabular" / f"{EXAMPLES[name]}.csv.gz", root)
    folder = tmp_path / "my-folder"  # as the stories name it: the script makes it
    settings = {"PYTHON": sys.executable, "TAILWISE_DATA": str(root), "EPOCHS": "1", "SEEDS": "1"}
    done = subprocess.run(
        ["bash", str(ROOT / "examples" / name / "run.sh"), str(folder)],
        env=short_processes | settings,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and "sitecustomize" not in done.stderr
    pages = list(folder.glob("*.html"))
    assert pages and all("Verdict" in page.read_text(encoding="utf-8") for page in pages)
