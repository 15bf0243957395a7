"""Every example runs with one epoch of one network, and the stories from their CSV to their report."""

from __future__ import annotations

import gzip
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
TORCHRUN = "torchrun_loop.py"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py"))


def shortened(text: str) -> str:
    """The same script with one epoch of one network."""
    text = re.sub(r"epochs=\d+,\s*", "", text).replace("for epoch in range(20)", "for epoch in range(1)")
    return text.replace("TailRegressor(", "TailRegressor(base=None, folds=1, epochs=1, ")


@pytest.mark.parametrize("script", SCRIPTS)
def test_example_runs_for_one_epoch(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TAILWISE_DATA", raising=False)
    text = (EXAMPLES / script).read_text(encoding="utf-8")
    quick = shortened(text)
    assert quick != text and "epochs=2" not in quick and "range(20)" not in quick
    exec(compile(quick, script, "exec"), {"__name__": "__main__"})
    assert len(capsys.readouterr().out.splitlines()) >= 3


@pytest.mark.slow
def test_two_processes_of_torchrun_share_their_rows(tmp_path: Path) -> None:
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node=2"]
    run = subprocess.run(
        [sys.executable, *launcher, str(EXAMPLES / TORCHRUN)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert len(run.stdout.splitlines()) >= 3, run.stdout
    # every row of both processes, each once
    assert re.search(r"^2 processes: 1600 labels in \d+ bins, 1600 latent rows$", run.stdout, re.MULTILINE)


STORIES = {"abalone_age": None, "delivery_times": "deliveries", "hotel_prices": "hotel_rates"}
ROWS = 1500  # of each table: the stories show commands, and accuracy is measured elsewhere


def test_every_story_is_run_here() -> None:
    assert {p.parent.name for p in (ROOT / "examples").glob("*/run.sh")} == set(STORIES)
    assert all((ROOT / "examples" / name / "README.md").exists() for name in STORIES)


def shorten(table: Path, root: Path) -> None:
    """Write the first rows of a table below another root, or skip the test."""
    if not table.exists():
        pytest.skip(f"{table} is missing")
    (root / "tabular").mkdir(parents=True)
    with gzip.open(table, "rt") as whole, gzip.open(root / "tabular" / table.name, "wt") as short:
        short.writelines(itertools.islice(whole, ROWS + 1))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(STORIES))
def test_story(
    name: str, short_processes: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    root = tmp_path / "data"
    if STORIES[name] is not None:
        shorten(request.getfixturevalue("data_root") / "tabular" / f"{STORIES[name]}.csv.gz", root)
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
