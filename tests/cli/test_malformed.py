"""Malformed tables of `make fuzz`: never a traceback, never a lost file."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

Run = Callable[..., Any]
Sample = Callable[..., pd.DataFrame]
FILES = 80
FUZZ = Path(__file__).parents[2] / "research" / "studies" / "fuzz.py"


def lines_for(number: int, path: Path, place: Path, folder: Path) -> list[list[str]]:
    """Commands to run on a file: always `diagnose`, now and then one that takes longer."""
    model, out = str(place / "m.tailwise"), str(folder / "kept")
    rarely = [
        ["predict", model, str(path), "-o", out, "--force"],
        ["evaluate", model, str(path), "-t", "price"],
        ["fit", str(path), "-t", "price", "-o", out, "--force", "--epochs", "1", "--folds", "1"],
        ["compare", str(path), "-t", "price", "--methods", "vanilla", "--seeds", "1", "--epochs", "1"],
    ]
    always = ["diagnose", str(path), "-t", "price"]
    return [always, *([rarely[number // 20 % 4]] if number % 20 == 0 else [])]


def test_malformed_files_never_crash_and_never_cost_a_file(run: Run, place: Path, tmp_path: Path) -> None:
    codes, kept, malformed = {0: 0, 1: 0}, tmp_path / "kept", runpy.run_path(str(FUZZ))["malformed"]
    for number in range(FILES):
        path, content = tmp_path / f"{number}.csv", malformed(number, np.random.default_rng([7, number]))
        path.write_bytes(content)
        for arguments in lines_for(number, path, place, tmp_path):
            kept.write_text("mine")
            out = run(*arguments)
            where = (number, arguments[0], out.exit_code, out.stderr)
            assert out.exception is None or isinstance(out.exception, SystemExit), where
            assert out.exit_code in codes, where
            assert "unexpected" not in out.stderr, where
            assert out.exit_code == 0 or out.stderr.count("error: ") == 1, where
            assert path.read_bytes() == content, where
            written = out.exit_code == 0 and str(kept) in arguments
            assert (kept.read_text(errors="replace") != "mine") == written, where
            assert {p.name for p in tmp_path.iterdir()} == {path.name, "kept"}, where
            codes[out.exit_code] += 1
        path.unlink()
    assert min(codes.values()) >= 20  # both ends were seen
