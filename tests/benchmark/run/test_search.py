"""Tuning: what is asked, in which order, and that it can be repeated."""

import json
import math
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailwise.benchmark.data.recipe import default_options
from tailwise.benchmark.run.search import SharedStudy, Study, check_storage, describe_space
from tailwise.methods import Range, Space

SPACE: Space = {
    "rate": Range(0.001, 10.0, default=0.1),
    "share": Range(0.0, 1.0, log=False, default=0.5),
    "kind": ("a", None),
}


def run(space: Space, trials: int, loss: Any) -> list[dict[str, Any]]:
    """Ask and tell until the trials are used up."""
    study, asked = Study(space, trials), []
    while (options := study.ask()) is not None:
        asked.append(options)
        study.tell(loss(options))
    return asked


def distance(options: dict[str, Any]) -> float:
    """Least at rate 3, share 0.8 and kind None."""
    near = abs(math.log(options["rate"] / 3)) + abs(options["share"] - 0.8)
    return near + (options["kind"] is not None)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 9))
def test_the_default_comes_first_and_all_lie_in_the_space(trials: int) -> None:
    asked = run(SPACE, trials, distance)
    assert asked[0] == default_options(SPACE) == {"rate": 0.1, "share": 0.5, "kind": "a"}
    assert len(asked) == trials
    for options in asked:
        assert (
            0.001 <= options["rate"] <= 10 and 0 <= options["share"] <= 1 and options["kind"] in ("a", None)
        )
        assert float(f"{options['rate']:.2g}") == options["rate"]


def test_the_same_losses_lead_to_the_same_questions() -> None:
    assert run(SPACE, 12, distance) == run(SPACE, 12, distance)
    assert run(SPACE, 12, distance) != run(SPACE, 12, lambda options: -distance(options))


def test_it_learns_from_what_it_is_told() -> None:
    towards, away = (run(SPACE, 60, lambda o, s=sign: s * distance(o))[30:] for sign in (1, -1))
    means = [sum(map(distance, asked)) / 30 for asked in (towards, away)]
    assert means[0] < 0.5 * means[1]


def test_failures_are_survived() -> None:
    asked = run(SPACE, 8, lambda options: None if options["kind"] == "a" else math.nan)
    assert len(asked) == 8


def test_none_is_asked_twice_and_a_small_space_is_exhausted() -> None:
    asked = run({"a": (1, 2), "b": (5, 6, 7)}, 9, lambda options: float(options["a"] == 2))
    assert sorted((o["a"], o["b"]) for o in asked) == [(a, b) for a in (1, 2) for b in (5, 6, 7)]


def test_values_of_any_kind_can_be_choices() -> None:
    asked = run({"clip": ((0.1, 10.0), (0.5, 2.0), None)}, 3, lambda o: float(o["clip"] is not None))
    assert {o["clip"] for o in asked} == {(0.1, 10.0), (0.5, 2.0), None}


def test_one_trial_or_no_space_needs_no_optuna(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert run({}, 5, lambda options: 1.0) == [{}]
    assert run(SPACE, 1, distance) == [default_options(SPACE)]
    with pytest.raises(ImportError, match=r"pip install 'tailwise\[search\]'"):
        Study(SPACE, 2)


def test_a_space_can_be_written_down() -> None:
    assert describe_space(SPACE) == {
        "rate": {"default": 0.1, "low": 0.001, "high": 10.0, "log": True},
        "share": {"default": 0.5, "low": 0.0, "high": 1.0, "log": False},
        "kind": ["a", None],
    }


@pytest.mark.parametrize("wrong", [(0.1, 1.0, True, 2.0), (0.0, 1.0), (2.0, 1.0)])
def test_a_range_holds_its_default(wrong: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="low <= default <= high"):
        Range(*wrong)  # type: ignore[arg-type]


# -- many processes ------------------------------------------------------------------------------


def test_processes_share_a_study_and_take_over_what_a_dead_one_left(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'search.db'}"
    with ExitStack() as stack:
        first, second, third = (stack.enter_context(SharedStudy(SPACE, 4, url, "s")) for _ in range(3))
        asked = [first.ask(), second.ask()]
        assert asked[0] == default_options(SPACE) and asked[1] not in (None, asked[0])
        first.claims.release("s, trial 0")  # as the end of its process does
        assert second.ask() == asked[0] and second.outcome() is None
        second.tell(1.0, {"options": asked[0]})
        asked += [third.ask(), first.ask()]
        assert first.ask() is None and third.outcome() is None
        third.tell(math.nan, {"options": asked[2]})
        first.tell(0.5, {"options": asked[3]})
        second.claims.release("s, trial 1")
        assert third.ask() == asked[1]
        third.tell(2.0, {"options": asked[1]})
        assert third.ask() is None and len({repr(options) for options in asked}) == 4
        best, lines = third.outcome() or (None, [])
    assert best == asked[3] and [line["options"] for line in lines] == asked


def test_a_shared_study_asks_nothing_twice_and_may_fail_altogether(tmp_path: Path) -> None:
    asked, url = [], f"sqlite:///{tmp_path / 'search.db'}"
    with SharedStudy({"a": (1, 2), "b": (5, 6)}, 9, url, "s") as study:
        while (options := study.ask()) is not None:
            asked.append((options["a"], options["b"]))
            study.tell(None, {"options": options})
        assert asked[0] == (1, 5) and sorted(asked) == [(1, 5), (1, 6), (2, 5), (2, 6)]
        assert (study.outcome() or (0, []))[0] is None
    with pytest.raises(ValueError, match="'mysql' is not a database for a search: give sqlite:///FILE"):
        check_storage("mysql://host/name")


@pytest.fixture
def postgres() -> Iterator[str]:
    """A PostgreSQL server on this machine, in a temporary folder."""
    found = [shutil.which("initdb"), *map(str, Path("/usr/lib/postgresql").glob("*/bin/initdb"))]
    if not (bin_folders := [Path(path).resolve().parent for path in found if path]):
        pytest.skip("PostgreSQL is not installed")
    who = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.getuid() == 0 else {}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if who:
            shutil.chown(folder, "nobody")

        def call(name: str, *words: str) -> None:
            command = [str(bin_folders[0] / name), "-D", f"{folder}/data", *words]
            subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, **who)

        call("initdb", "-U", "tester", "-A", "trust", "--no-sync")
        options = f"-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories= -c fsync=off"
        call("pg_ctl", "-w", "-l", f"{folder}/log", "-o", options, "start")
        try:
            yield f"postgresql://tester@127.0.0.1:{port}/postgres"
        finally:
            call("pg_ctl", "-m", "immediate", "stop")


def search(url: str, told: str, dies_at: int, together: Any, gone: Any) -> None:
    """Search in a process of its own, and write what it told to a file; all wait until one is gone."""
    with SharedStudy(SPACE, 24, url, "shared") as study, Path(told).open("w") as file:
        together.wait(60)
        while (options := study.ask()) is not None:
            time.sleep(0.02)
            if (dies_at := dies_at - 1) == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            study.tell(distance(options), {"options": options, "process": os.getpid()})
            file.write(json.dumps(options) + "\n")
            file.flush()
            if dies_at < 0:
                gone.wait(60)


@pytest.mark.slow
def test_two_processes_search_in_postgresql_without_losing_or_doubling_a_trial(
    postgres: str, tmp_path: Path
) -> None:
    context = multiprocessing.get_context("fork")
    together, gone = context.Barrier(3), context.Event()
    files = [tmp_path / name for name in ("a", "b", "killed")]
    processes = [
        context.Process(
            target=search, args=(postgres, str(file), 4 * (file.name == "killed"), together, gone)
        )
        for file in files
    ]
    for process in processes:
        process.start()
    processes[-1].join(60)
    gone.set()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, -signal.SIGKILL]
    told = [line for file in files for line in file.read_text().splitlines()]
    assert len(told) == len(set(told)) == 24 and all(file.read_text() for file in files)
    with SharedStudy(SPACE, 24, postgres, "shared") as study:
        best, lines = study.outcome() or (None, [])
    assert sorted(json.dumps(line["options"]) for line in lines) == sorted(told)
    assert best == min((json.loads(line) for line in told), key=distance)
