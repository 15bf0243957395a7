"""Every example runs, with one epoch of one network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
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
