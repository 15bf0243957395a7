"""A method of one's own, in a file that is not part of the package, beside the others."""

import re
from pathlib import Path
from unittest import mock

import pytest

from tailwise.benchmark import load_plugin
from tailwise.benchmark.run import plugins
from tailwise.benchmark.run.results import read_results
from tailwise.methods import available_methods, registry
from tailwise.networks.losses import OBJECTIVES
from tests.benchmark.conftest import run_bench

CONTRIBUTING = Path(__file__).parents[3] / "CONTRIBUTING.md"


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """The method of CONTRIBUTING.md as a file; what it registers is forgotten afterwards."""
    text = CONTRIBUTING.read_text(encoding="utf-8")
    path = tmp_path / "mine.py"
    path.write_text(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[0], encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def _forget():  # type: ignore[no-untyped-def]
    with (
        mock.patch.dict(OBJECTIVES),
        mock.patch.dict(registry._REGISTRY),
        mock.patch.object(plugins, "_loaded", []),
    ):
        yield


def _suite(tmp_path: Path, plugin: Path, *more: str) -> list[str]:
    out, work = str(tmp_path / "out"), str(tmp_path / "work")
    small = ["--epochs", "1", "--trials", "1", "--seeds", "1", "--out", out, "--work", work]
    return ["suite", "quick", "--plugin", str(plugin), "--methods", "huber", *small, *more]


def test_it_runs_like_any_other_method(tmp_path: Path, plugin: Path) -> None:
    assert run_bench(_suite(tmp_path, plugin)) == 0
    runs = read_results(tmp_path / "out" / "results.jsonl")
    assert [(r["data"], r["method"]) for r in runs] == [("abalone", "huber"), ("generated", "huber")]
    assert "| Huber |" in (tmp_path / "out" / "quick.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_workers_know_it_too(tmp_path: Path, plugin: Path) -> None:
    assert run_bench(_suite(tmp_path, plugin, "--workers", "2")) == 0
    assert len(read_results(tmp_path / "out" / "results.jsonl")) == 2


def test_it_is_run_once(plugin: Path) -> None:
    load_plugin(plugin)
    load_plugin(plugin)  # registering a name twice would be an error
    assert available_methods().count("huber") == 1
    assert plugins.loaded_plugins() == (str(plugin),)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("gone.py", None, "gone.py does not exist"),
        ("notes.txt", "hello", "notes.txt is not a Python file"),
        ("broken.py", "import nothing_of_that_name", "broken.py cannot be used as a plugin: ModuleNotFound"),
    ],
)
def test_mistakes_are_usage_errors(
    tmp_path: Path,
    name: str,
    text: str | None,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text, encoding="utf-8")
    monkeypatch.setenv("COLUMNS", "400")
    assert run_bench(_suite(tmp_path, path)) == 2
    assert message in " ".join(capsys.readouterr().err.split())
