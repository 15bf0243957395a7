"""Commands that are stopped write no half files, lose no finished work, and resume."""

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

Tailwise = Any
Sample = Callable[..., pd.DataFrame]
ONE = ["--folds", "1", "--base", "none"]
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}


def files(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def stopped(
    tailwise: Tailwise, folder: Path, line: list[object], by: signal.Signals, ready: Callable[[], bool]
) -> str:
    """Start a command, stop it once it is ready for that, and return what it said."""
    process = tailwise.launch(*line, cwd=folder)
    deadline = time.monotonic() + 1200
    while not ready() and process.running and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(by)
    assert process.wait() == SIGNALS[by], process.stderr
    assert "stopped: " in process.stderr and "Traceback" not in process.stderr, process.stderr
    return str(process.stderr)


def test_fit_goes_on_from_its_checkpoint(tailwise: Tailwise, sample: Sample, tmp_path: Path) -> None:
    sample(300).to_csv(tmp_path / "some.csv", index=False)
    line = ["fit", "some.csv", "-t", "price", "-o", "m", *ONE, "--epochs"]
    kept = tmp_path / "m.checkpoint"
    said = stopped(tailwise, tmp_path, [*line, 5000], signal.SIGTERM, kept.exists)
    assert "the same command resumes from m.checkpoint" in said
    assert files(tmp_path) == ["m.checkpoint", "some.csv"]
    reached = int(torch.load(kept, weights_only=True)["epoch"])
    assert reached >= 1

    # The same size, the same labels, a few other cells: not what the checkpoint belongs to.
    other = sample(300)
    other.loc[::30, "z"] += 0.5
    other.to_csv(tmp_path / "other.csv", index=False)
    before = kept.read_bytes()
    refused = tailwise.refused("fit", "other.csv", *line[2:], reached + 1, cwd=tmp_path)
    assert (
        "m.checkpoint was trained with training data = " in refused and "delete it to start over" in refused
    )
    assert kept.read_bytes() == before
    (tmp_path / "other.csv").unlink()

    out = tailwise(*line, reached + 1, cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    assert "resuming from m.checkpoint" in out.stderr
    assert re.findall(r"^epoch (\d+)/", out.stderr, re.M) == [str(reached + 1)]  # and not from the first
    assert files(tmp_path) == ["m", "some.csv"]


def test_other_weights_or_bins_do_not_go_on(tailwise: Tailwise, sample: Sample, tmp_path: Path) -> None:
    table = sample(300).assign(w=lambda t: 1.0 + (t["x"] > 0), v=lambda t: 1.0 + (t["z"] > 0))
    table.to_csv(tmp_path / "some.csv", index=False)
    top = float(table["price"].max())
    line = ["fit", "some.csv", "-t", "price", "-o", "m", "--drop", "w,v", *ONE, "--epochs", 5000]
    chosen = ["--weight", "w", "--bins", f"-1,1,{top + 2},{top + 4}"]
    kept = tmp_path / "m.checkpoint"
    stopped(tailwise, tmp_path, [*line, *chosen], signal.SIGINT, kept.exists)
    before = kept.read_bytes()
    empty = ["--weight", "w", "--bins", f"-1,1,{top + 3},{top + 4}"]  # as many labels in each, other centres
    for other in (["--weight", "v", *chosen[2:]], chosen[2:], empty):
        refused = tailwise.refused(*line, *other, cwd=tmp_path)
        assert "m.checkpoint was trained with " in refused and "delete it to start over" in refused
        assert kept.read_bytes() == before


def test_compare_keeps_the_runs_that_were_done(tailwise: Tailwise, sample: Sample, tmp_path: Path) -> None:
    sample(200).to_csv(tmp_path / "some.csv", index=False)
    line = ["compare", "some.csv", "-t", "price", "--methods", "plain", "--seeds", 3, "--epochs", 10,
            "-o", "r.jsonl"]  # fmt: skip
    kept = tmp_path / "r.jsonl.checkpoint"
    said = stopped(
        tailwise, tmp_path, line, signal.SIGINT, lambda: kept.exists() and b"\n" in kept.read_bytes()
    )
    assert "the same command resumes from r.jsonl.checkpoint" in said
    assert files(tmp_path) == ["r.jsonl.checkpoint", "some.csv"]
    done = [json.loads(text) for text in kept.read_text().splitlines() if text.endswith("}")]
    assert 1 <= len(done) < 3

    out = tailwise(*line, cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    assert f"resuming from r.jsonl.checkpoint, which has {len(done)} finished runs" in out.stderr
    records = [json.loads(text) for text in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert len(records) == 3
    assert all(run in records for run in done)  # with the seconds they took: they were not repeated
    assert files(tmp_path) == ["r.jsonl", "some.csv"]


def test_what_cannot_be_kept_is_said(tailwise: Tailwise, sample: Sample, tmp_path: Path) -> None:
    sample(100).to_csv(tmp_path / "some.csv", index=False)
    line = ["compare", "some.csv", "-t", "price", "--methods", "plain", "--seeds", 20, "--epochs", 50]
    process = tailwise.launch(*line, cwd=tmp_path)
    deadline = time.monotonic() + 1200
    while "seed 0" not in process.stderr and process.running and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 143
    assert "nothing was kept; with --out" in process.stderr and "Traceback" not in process.stderr
    assert files(tmp_path) == ["some.csv"]


def alive(group: int) -> list[str]:
    """Processes of a group that still run; one that nobody has buried is dead."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
        except OSError:  # gone meanwhile
            continue
        state, _, its_group = rest.split()[:3]
        if int(its_group) == group and state != "Z":
            found.append(name)
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("after", [1.0, 8.0], ids=["while workers start", "while they work"])
def test_demo_takes_its_workers_along(program: Tailwise, tmp_path: Path, after: float) -> None:
    process = program.start("demo", "--out", "d", "--workers", 2, cwd=tmp_path, start_new_session=True)
    with process:
        assert "Training" in process.stderr.readline()
        time.sleep(after)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        said = process.stderr.read()
    assert process.returncode == 130
    assert "Traceback" not in said, said
    assert files(tmp_path) == []
    await_end(process.pid)


def await_end(group: int) -> None:
    """Wait until no process of a group runs."""
    deadline = time.monotonic() + 60
    while alive(group) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert alive(group) == []


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_workers_end_with_a_killed_command(program: Tailwise, sample: Sample, tmp_path: Path) -> None:
    sample(100).to_csv(tmp_path / "some.csv", index=False)
    line = ["compare", "some.csv", "-t", "price", "--methods", "plain", "--seeds", 20, "--epochs", 5000,
            "-o", "r.jsonl", "--workers", 2]  # fmt: skip
    with program.start(*line, cwd=tmp_path, start_new_session=True) as process:
        deadline = time.monotonic() + 600
        while not (tmp_path / "r.jsonl.checkpoint").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert len(alive(process.pid)) > 2  # it and two workers
        process.kill()  # and not its group
    await_end(process.pid)
