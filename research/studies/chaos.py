"""Kill commands at random moments, run them again, and compare with runs that nobody killed.

``python research/studies/chaos.py`` sends 100 kills (SIGKILL) to `tailwise fit`, `compare` (two workers),
`predict`, `tailwise-bench run` (two workers) and to a loop that saves a model. After each kill, files under
their final names must be whole, and workers must end by themselves. After one to three kills the command runs
to its end: its numbers and files must be those of the run that was not killed, and nothing else may be left.
The exit code is 1 if anything differs. Each command runs in a fork of this process, which has imported what
it needs, so that kills hit its work and not its imports. The same seed kills at the same shares of a
command's time.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # a fork does not inherit threads

import numpy as np
import pandas as pd

from tailwise import TailRegressor
from tailwise.cli import main as command_line
from tailwise.model import base as bases
from tailwise_bench.cli import main as bench

MOST_IN_A_ROW = 3
"""A command is killed up to so many times before it runs to its end."""
PATIENCE = 30.0
"""Seconds that workers have to end after their parent."""
ROWS, TREES = 120, 30
MODULES = (
    *("tailwise.cli.fit", "tailwise.cli.compare", "tailwise.report.page"),
    "catboost",
)
"""What the commands import."""


def save_again_and_again(times: int) -> None:
    """Save two models in turn under one name."""
    models = [TailRegressor.load(name) for name in ("first", "second")]
    for number in range(times):
        models[number % 2].save("m", overwrite=True)


# -- what is compared ------------------------------------------------------------------------------


def _without_times(value: Any) -> Any:
    """Leave out what differs between two equal runs: seconds."""
    if isinstance(value, dict):
        return {key: _without_times(item) for key, item in value.items() if key not in ("seconds", "machine")}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


def _lines(path: Path) -> Any:
    """Return the runs of a results file, in a fixed order; a line that is no JSON is an error."""
    runs = [json.loads(line) for line in path.read_text().splitlines()]
    return sorted(json.dumps(_without_times(run), sort_keys=True) for run in runs)


def _page(path: Path) -> Any:
    """Return whether a page is whole; it names the time that training took."""
    return path.read_text().rstrip().endswith("</html>")


@dataclass(frozen=True)
class Story:
    """A command, its outputs, and how each is read to be compared."""

    name: str
    words: tuple[str, ...]
    outputs: dict[str, Callable[[Path], Any]]
    needs: tuple[str, ...]
    grows: bool = False
    """Whether the output is appended to, so that it may have a part of the lines before the end."""
    ends_as: tuple[str, ...] = ()
    """Files of which an output is a copy at any time."""

    def read(self, folder: Path) -> dict[str, Any]:
        """Return the content of all outputs."""
        return {name: read(folder / name) for name, read in self.outputs.items()}

    def corrupt(self, folder: Path, expected: dict[str, Any]) -> list[str]:
        """Return the outputs that are neither missing nor whole."""
        found = []
        for name, read in self.outputs.items():
            path = folder / name
            if not path.exists():
                continue
            try:
                if self.grows:  # an unfinished last line is dropped by whoever reads the file
                    text = path.read_text()
                    whole = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
                    good = len(whole) <= len(expected[name])
                elif self.ends_as:
                    good = any(read(path) == read(folder / other) for other in self.ends_as)
                else:
                    good = read(path) == expected[name]
            except (OSError, ValueError):
                good = False
            if not good:
                found.append(name)
        return found


def _stories(saves: int) -> list[Story]:
    small = ("--epochs", "2", "--quiet")
    return [
        Story(
            "fit",
            ("tailwise", "fit", "t.csv", "-t", "y", "-o", "m", "--folds", "2", *small, "--report", "m.html",
             "--no-baseline"),
            {"m": Path.read_bytes, "m.html": _page},
            ("t.csv",),
        ),
        Story(
            "compare",
            ("tailwise", "compare", "t.csv", "-t", "y", "-o", "r.jsonl", "--methods", "plain", "--seeds", "4",
             "--workers", "2", *small),
            {"r.jsonl": _lines},
            ("t.csv",),
        ),
        Story(
            "predict",
            ("tailwise", "predict", "first", "t.csv", "-o", "p.csv", "--quiet"),
            {"p.csv": Path.read_bytes},
            ("first", "t.csv"),
        ),
        Story(
            "bench",
            ("tailwise-bench", "run", "quick", "--methods", "vanilla", "--data", "abalone", "--seeds", "4",
             "--workers", "2", "--epochs", "2", "--trials", "1", "--out", "r", "--work", "w"),
            {"r/quick.jsonl": _lines},
            (),
            grows=True,
        ),
        Story(
            "save",
            ("save", str(saves)),
            {"m": Path.read_bytes},
            ("first", "second"),
            ends_as=("first", "second"),
        ),
    ]  # fmt: skip


def make_inputs(folder: Path) -> None:
    """Write a small table, and two models of it."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({name: rng.normal(size=ROWS) for name in ("a", "b", "c")})
    table["kind"] = rng.choice(["x", "y", "z"], ROWS)
    table["y"] = np.exp(table["a"] + 0.1 * rng.normal(size=ROWS))
    table.to_csv(folder / "t.csv", index=False)
    for seed, name in enumerate(("first", "second")):
        model = TailRegressor(epochs=2, folds=1, base=None, random_state=seed)
        model.fit(table.drop(columns="y"), table["y"]).save(folder / name)


# -- kills -----------------------------------------------------------------------------------------


def _names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def _copy(inputs: Path, names: tuple[str, ...], to: Path) -> Path:
    to.mkdir()
    for name in names:
        if (inputs / name).is_dir():
            shutil.copytree(inputs / name, to / name)
        else:
            shutil.copy(inputs / name, to / name)
    return to


def _fork(work: Callable[[], None], folder: Path, log: Path) -> int:
    """Start a function in a process of its own, in a folder; return its number."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.setsid()  # its workers are then found by its number
        os.chdir(folder)
        for handle in (1, 2):
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), handle)
        work()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _work_of(words: Sequence[str]) -> Callable[[], None]:
    def work() -> None:
        if words[0] == "save":
            save_again_and_again(int(words[1]))
        else:
            sys.argv = list(words)
            bench() if words[0] == "tailwise-bench" else command_line()

    return work


def _finish(story: Story, folder: Path) -> float:
    """Run a command to its end and return its seconds."""
    began, log = time.perf_counter(), folder.with_name("log")
    log.unlink(missing_ok=True)
    _, status = os.waitpid(_fork(_work_of(story.words), folder, log), 0)
    if status:
        raise SystemExit(f"{story.name} failed in {folder.name}:\n{log.read_text()[-2000:]}")
    return time.perf_counter() - began


def _kill(story: Story, folder: Path, seconds: float) -> tuple[bool, int]:
    """Start a command and kill it after some seconds.

    Returns whether it was still running, and how many of its workers live on.
    """
    process = _fork(_work_of(story.words), folder, folder.with_name("log"))
    time.sleep(seconds)
    os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    deadline = time.monotonic() + PATIENCE
    while (workers := _alive(process)) and time.monotonic() < deadline:
        time.sleep(0.1)
    if workers:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
    return os.WIFSIGNALED(status), workers


def _alive(group: int) -> int:
    """Return how many processes of a group run; one that nobody has buried is dead."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return 0
    states = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            state, _, of = status.read_text().rpartition(")")[2].split()[:3]
            states += [state] * (int(of) == group)
    return len(states) - states.count("Z")


def torment(story: Story, kills: int, inputs: Path, work: Path, chance: random.Random) -> dict[str, int]:
    """Kill a command, run it again, and count what went wrong."""
    reference = _copy(inputs, story.needs, work / f"{story.name}-reference")
    seconds = _finish(story, reference)
    expected, names = story.read(reference), _names(reference)
    counts = dict.fromkeys(
        ("kills", "runs to the end", "differences", "corrupt files", "leftovers", "living workers"), 0
    )
    while counts["kills"] < kills:
        folder = _copy(inputs, story.needs, work / f"{story.name}-{counts['kills']}")
        for _ in range(min(chance.randint(1, MOST_IN_A_ROW), kills - counts["kills"])):
            killed, workers = _kill(story, folder, chance.uniform(0, seconds))
            counts["living workers"] += workers
            if not killed:
                break
            counts["kills"] += 1
            counts["corrupt files"] += len(story.corrupt(folder, expected))
        if story.grows or story.ends_as or _names(folder) != names:  # else it had ended
            _finish(story, folder)
        counts["runs to the end"] += 1
        counts["differences"] += sum(story.read(folder)[name] != of for name, of in expected.items())
        counts["leftovers"] += len(set(_names(folder)) ^ set(names))
        shutil.rmtree(folder)
    return counts


def main() -> int:
    """Print a table of all commands; return 1 if anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="number of kills in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", default="fit,compare,predict,bench,save", help="comma-separated")
    parser.add_argument("--saves", type=int, default=12, help="times that a model is saved before the end")
    given = parser.parse_args()
    stories = [story for story in _stories(given.saves) if story.name in given.commands.split(",")]
    chance, wrong = random.Random(given.seed), 0
    with tempfile.TemporaryDirectory() as temporary:
        inputs = Path(temporary, "inputs")
        inputs.mkdir()
        for module in MODULES:
            importlib.import_module(module)
        bases.TREES = TREES
        os.waitpid(_fork(lambda: make_inputs(inputs), inputs, Path(temporary, "log")), 0)
        for place, story in enumerate(stories):
            share = given.kills // len(stories) + (place < given.kills % len(stories))
            counts = torment(story, share, inputs, Path(temporary), chance)
            if place == 0:
                print("| command | " + " | ".join(counts) + " |")
                print("|---" * (len(counts) + 1) + "|")
            print(f"| {story.name} | " + " | ".join(map(str, counts.values())) + " |", flush=True)
            wrong += sum(list(counts.values())[2:])
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
