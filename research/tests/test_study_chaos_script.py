"""Kills at random moments (research/studies/chaos.py): a few of them, and what would be found."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "research" / "studies" / "chaos.py"


@pytest.mark.slow
def test_kills_change_no_number_and_leave_nothing() -> None:
    options = ["--kills", "3", "--commands", "predict,save", "--saves", "8"]
    line = [sys.executable, "-W", "ignore", str(SCRIPT), *options]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^\| (\w[\w ]*) \| [12] \| \d \| 0 \| 0 \| 0 \| 0 \|$", done.stdout, re.M)
    assert rows == ["predict", "save"]
