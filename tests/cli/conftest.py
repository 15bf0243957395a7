"""The command as users start it, tables, and models that it trained."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from tailwise import TailRegressor
from tailwise.model import base as bases
from tests.command_line import invoke

Run = Callable[..., Any]
Sample = Callable[..., pd.DataFrame]
SRC = Path(__file__).parents[2] / "src"
SCRIPT = Path(sysconfig.get_path("scripts")) / ("tailwise.exe" if os.name == "nt" else "tailwise")
QUICK = ["--epochs", "1", "--quiet"]
FAST = ["--epochs", "1", "--folds", "1", "--base", "none", "--quiet"]


class Installed:
    """Runs the `tailwise` that pip put beside the interpreter, in a process of its own."""

    # In a checkout that was never installed `python -m tailwise` is the same program.
    line = (str(SCRIPT),) if SCRIPT.exists() else (sys.executable, "-m", "tailwise")

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(SRC), os.environ.get("PYTHONPATH", "")]))
        return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}

    def __call__(self, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run to the end; whatever happens, Python must not show a traceback."""
        done = subprocess.run(
            [*self.line, *map(str, arguments)],
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=1200,
            **options,
        )
        assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr, done.stderr
        return done

    def refused(self, *arguments: object, **options: Any) -> str:
        """Run into an error that the user can mend, and return the one line that says so."""
        done = self(*arguments, **options)
        assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
        lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1 and "unexpected" not in lines[0], done.stderr
        return lines[0]

    def start(self, *arguments: object, **options: Any) -> subprocess.Popen[str]:
        """Start, and leave it to the caller to stop it."""
        return subprocess.Popen(
            [*self.line, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
            **options,
        )


@pytest.fixture(scope="session")
def program() -> Installed:
    """The command as users start it, imports and all."""
    return Installed()


@pytest.fixture(scope="session", autouse=True)
def few_trees() -> Iterator[None]:
    """Boosted trees that are fitted quickly; nothing here depends on how good they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bases, "TREES", 60)
        yield


@pytest.fixture(scope="session")
def run() -> Run:
    """The command in this process, where none of its own is needed."""
    return invoke


@pytest.fixture(scope="session")
def sample() -> Sample:
    """Makes tables of houses in which high prices are rare; ``price`` is the target.

    Without the column of text, ``kind``, a model is fitted and saved three times as fast.
    """

    def made(rows: int = 200, seed: int = 0, *, text: bool = False) -> pd.DataFrame:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(rows, 2))
        kind = rng.choice(["red", "blue"], rows)
        y = np.exp(x[:, 0]) + (kind == "red") + 0.1 * rng.normal(size=rows)
        table = pd.DataFrame({"x": x[:, 0], "z": x[:, 1], "kind": kind, "price": y.round(3)})
        return table if text else table.drop(columns="kind")

    return made


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory, run: Run, sample: Sample) -> Path:
    """A folder with tables, a model and its report made from houses.csv, and a small one from numbers.csv.

    The second model, ``n.tailwise``, has no base and no text, and loads ten times as fast.
    """
    folder = tmp_path_factory.mktemp("cli")
    sample(text=True).to_csv(folder / "houses.csv", index=False)
    sample().to_csv(folder / "numbers.csv", index=False)
    sample(150, seed=1, text=True).to_csv(folder / "new.csv", index=False)
    out = run("fit", folder / "houses.csv", "-t", "price", "-o", folder / "m.tailwise", "--report",
              folder / "m.html", "--seed", 3, "--folds", 2, *QUICK)  # fmt: skip
    assert out.exit_code == 0, out.output
    assert "Against CatBoost, the error is" in out.stdout
    out = run("fit", folder / "numbers.csv", "-t", "price", "-o", folder / "n.tailwise", *FAST)
    assert out.exit_code == 0, out.output
    return folder


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory, run: Run, sample: Sample) -> Path:
    """A folder with a table of two targets and a model of both."""
    folder = tmp_path_factory.mktemp("pair")
    table = sample(text=True).assign(rent=lambda t: 10 * t["price"] + t["z"])
    table.to_csv(folder / "both.csv", index=False)
    out = run("fit", folder / "both.csv", "--target", "rent", "--target", "price", "-o", folder / "m", *FAST)
    assert out.exit_code == 0, out.output
    assert out.stdout.count("90% coverage") == 2  # a table for each target
    assert out.stdout.index("rent:") < out.stdout.index("price:")
    return folder


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory, run: Run, place: Path) -> Path:
    """A results file and, beside it, the page that ranks its methods."""
    folder = tmp_path_factory.mktemp("results")
    out = run("compare", place / "numbers.csv", "-t", "price", "--methods", "vanilla,vir", "--seeds", 2, "-o",
              folder / "r.jsonl", "--report", folder / "r.html", *QUICK)  # fmt: skip
    assert out.exit_code == 0, out.output
    assert "lowest error" in out.stdout
    return folder / "r.jsonl"


class Fit(NamedTuple):
    """The arguments of a call of `TailRegressor.fit`."""

    model: TailRegressor
    X: pd.DataFrame
    y: Any
    options: dict[str, Any]


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[Fit]:
    """Calls of `TailRegressor.fit`. Nothing is trained; each call ends its command with an error."""
    calls = []

    def caught(model: TailRegressor, X: Any, y: Any, **options: Any) -> None:
        calls.append(Fit(model, X, y, options))
        raise ValueError("not trained")

    monkeypatch.setattr(TailRegressor, "fit", caught)
    return calls


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True)
    if made.returncode != 0:
        pytest.skip(f"cannot mount a small disk here: {made.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def predicted(run: Run, model: Path, table: Path) -> pd.DataFrame:
    """Predictions of a table."""
    out = model.with_name(f"{model.name}.csv")
    done = run("predict", model, table, "-o", out)
    assert done.exit_code == 0, done.output
    return pd.read_csv(out)


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The facts of each page that a command writes. The page itself, slow to draw, is only a word."""
    import tailwise.report.page

    facts: list[Any] = []

    def page(model: Any, verdict: Any, about: Any, *_: Any) -> str:
        facts.append(about)
        return "page"

    monkeypatch.setattr(tailwise.report.page, "model_page", page)
    return facts
