"""Commands that are stopped write no half files, lose no finished work, and resume."""

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.cli.conftest import FAST, Installed, Run, Sample

SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}


def files(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def stopped(
    program: Installed, folder: Path, line: list[object], by: signal.Signals, ready: Callable[[], bool]
) -> str:
    """Start a command, stop it once it is ready for that, and return what it said."""
    with program.start(*line, cwd=folder) as process:
        deadline = time.monotonic() + 1200
        while not ready() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(by)
        said = str(process.communicate()[1])
    assert process.returncode == SIGNALS[by], said
    assert "stopped: " in said and "Traceback" not in said, said
    return said


def test_fit_goes_on_from_its_checkpoint(
    program: Installed, run: Run, sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = sample(300).assign(w=lambda t: 1.0 + (t["x"] > 0), v=lambda t: 1.0 + (t["z"] > 0))
    table.to_csv("some.csv", index=False)
    top = float(table["price"].max())
    line = ["-t", "price", "-o", "m", "--drop", "w,v", *FAST[2:-1], "--weight", "w", "--bins"]
    same = [*line, f"-1,1,{top + 2},{top + 4}", "--epochs"]
    kept = tmp_path / "m.checkpoint"
    said = stopped(program, tmp_path, ["fit", "some.csv", *same, 5000], signal.SIGTERM, kept.exists)
    assert "the same command resumes from m.checkpoint" in said
    assert files(tmp_path) == ["m.checkpoint", "some.csv"]
    reached, before = int(torch.load(kept, weights_only=True)["epoch"]), kept.read_bytes()
    assert reached >= 1

    # The same size, the same labels, a few other cells: not what the checkpoint belongs to.
    other = table.copy()
    other.loc[::30, "z"] += 0.5
    other.to_csv("other.csv", index=False)
    empty = f"-1,1,{top + 3},{top + 4}"  # as many labels in each bin, other centres
    for changed in (
        ["other.csv", *same],
        ["some.csv", *same, "--weight", "v"],
        ["some.csv", *line, empty, "--epochs"],
    ):
        epochs = changed.index("--epochs") + 1
        refused = run("fit", *changed[:epochs], reached + 1, *changed[epochs:])
        assert refused.exit_code == 1 and "m.checkpoint was trained with " in refused.stderr
        assert "delete it to start over" in refused.stderr and kept.read_bytes() == before
    (tmp_path / "other.csv").unlink()

    out = run("fit", "some.csv", *same, reached + 1)
    assert out.exit_code == 0, out.stderr
    assert "resuming from m.checkpoint" in out.stderr
    assert re.findall(r"^epoch (\d+)/", out.stderr, re.M) == [str(reached + 1)]  # and not from the first
    assert files(tmp_path) == ["m", "some.csv"]


def test_compare_keeps_the_runs_that_were_done(
    program: Installed, run: Run, sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sample(200).to_csv(tmp_path / "some.csv", index=False)
    line = ["compare", "some.csv", "-t", "price", "--methods", "plain", "--seeds", 3, "--epochs", 10,
            "-o", "r.jsonl"]  # fmt: skip
    kept = tmp_path / "r.jsonl.checkpoint"
    said = stopped(
        program, tmp_path, line, signal.SIGINT, lambda: kept.exists() and b"\n" in kept.read_bytes()
    )
    assert "the same command resumes from r.jsonl.checkpoint" in said
    assert files(tmp_path) == ["r.jsonl.checkpoint", "some.csv"]
    done = [json.loads(text) for text in kept.read_text().splitlines() if text.endswith("}")]
    assert 1 <= len(done) < 3

    out = run(*line)
    assert out.exit_code == 0, out.stderr
    assert f"resuming from r.jsonl.checkpoint, which has {len(done)} finished runs" in out.stderr
    records = [json.loads(text) for text in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert len(records) == 3
    assert all(record in records for record in done)  # with the seconds they took: they were not repeated
    assert files(tmp_path) == ["r.jsonl", "some.csv"]


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
def test_demo_takes_its_workers_along(program: Installed, tmp_path: Path, after: float) -> None:
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
def test_workers_end_with_a_killed_command(program: Installed, sample: Sample, tmp_path: Path) -> None:
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
