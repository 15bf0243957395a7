"""Every example runs as it stands, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


QUICK = ("dataframe.py", "fabric_loop.py")


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(p.name, marks=[] if p.name in QUICK else pytest.mark.slow)
        for p in sorted(EXAMPLES.glob("*.py"))
    ],
)
def test_example_runs(script: str, tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "TAILWISE_DATA"} | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert len(run.stdout.splitlines()) >= 3, run.stdout
