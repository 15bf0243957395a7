"""The commands of `tailwise bench`: options, exit codes, and the files they write."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tailwise.benchmark import Recipe, Source, Suite, read_results
from tailwise.benchmark.data.suites import SUITES, generated
from tailwise.benchmark.run.ablations import ablations
from tailwise.benchmark.run.defaults import Fit
from tailwise.benchmark.run.results import ResultsFile
from tailwise.benchmark.run.trace import machine
from tailwise.methods import get_method, load_plugin
from tests.benchmark.conftest import prepare_small_problems, run_bench
from tests.plugin_samples import forgotten, write_plugin


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """Two small data sets with two seeds, prepared for the suite `quick`, whose recipe is used."""
    folder = prepare_small_problems(tmp_path / "prepared")
    (folder / "suite.json").write_text('{"suite": "quick"}', encoding="utf-8")
    return folder


# -- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["suite", "quick", "--workers", "0"], 2, "Invalid value for '--workers'"),
        (["suite", "quick", "--epochs", "-1"], 2, "Invalid value for '--epochs'"),
        (["suite", "quick", "--trials", "two"], 2, "Invalid value for '--trials'"),
        (["suite", "quick", "--seeds", "0"], 2, "'0' is not a whole number of at least 1"),
        (["suite", "quick", "--seeds", "0,x"], 2, "'x' is not a whole number of at least 0"),
        (["suite", "quick", "--weights", "inv"], 2, "'inv' is neither own nor sqinv"),
        (["suite", "quick", "--time-limit", "-5"], 2, "Invalid value for '--time-limit'"),
        (["suite", "stsb-papr"], 2, "did you mean 'stsb-paper'"),
        (["suite", "gone.toml"], 2, "gone.toml does not exist"),
        (["suite", "quick", "--plugin", "gone.py"], 2, "gone.py does not exist"),
        (["nonsense"], 2, "No such command 'nonsense'"),
        (["tables", "nowhere.jsonl"], 1, "error: nowhere.jsonl does not exist"),
        (["run", "--prepared", "nowhere", "--out", "lines.jsonl"], 1, "error: nowhere has no prepared data"),
        (["prepare", "--suite", "tabular", "--out", "work"], 1, "set the environment variable TAILWISE_DATA"),
        (["choose-defaults", "--out", "nothing.jsonl"], 1, "nothing.jsonl has no line of vanilla"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes(
    arguments: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TAILWISE_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    assert run_bench(arguments) == code
    assert message in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.iterdir())


def test_help_is_shown_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_bench([]) == 2
    shown = capsys.readouterr()
    for command in ("suite", "prepare", "run", "tables", "time", "ablations", "stsb", "choose-defaults"):
        assert f" {command} " in shown.out + shown.err


# -- commands ------------------------------------------------------------------------------------


def test_prepare_and_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work, out = str(tmp_path / "work"), str(tmp_path / "r.jsonl")
    prepare = ["prepare", "--suite", "quick", "--out", work, "--seeds", "1", "--max-rows", "150"]
    assert run_bench([*prepare, "--per-bin", "3"]) == 0
    run = ["run", "--prepared", work, "--out", out, "--methods", "vanilla", "--seeds", "0,0", "--epochs", "1"]
    run = [*run, "--trials", "1", "--data", "abalone"]
    assert run_bench([*run, "--time-limit", "0"]) == 3
    assert run_bench(run) == 0
    shown = capsys.readouterr().err
    assert "0 runs in 0 s, 2 left, 0 failed" in shown and "1/2 abalone vanilla seed 0: balanced MAE" in shown


def test_suite_does_all_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source("generated", "y", partial(generated, rows=200))
    monkeypatch.setitem(SUITES, "tiny", Suite((source,), recipe=Recipe(backbone_options={"hidden": (8,)})))
    suite = ["suite", "tiny", "--methods", "vanilla,vir", "--seeds", "0,2", "--epochs", "1", "--trials", "1"]
    assert run_bench([*suite, "--times", "--out", tmp_path / "out", "--work", tmp_path / "work"]) == 0
    runs = read_results(tmp_path / "out" / "results.jsonl")
    assert sorted((r["method"], r["seed"]) for r in runs) == [
        (m, s) for m in ("vanilla", "vir") for s in (0, 2)
    ]
    assert "## Times" in (tmp_path / "out" / "tiny.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_kill_and_resume(prepared: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    command = [sys.executable, "-m", "tailwise", "bench", "run", "--prepared", str(prepared)]
    command += ["--methods", "vanilla,lds", "--seeds", "2", "--epochs", "30", "--trials", "2"]
    command += ["--workers", "2", "--out", str(out)]
    running = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    ends = time.monotonic() + 120
    while not (out.is_file() and out.stat().st_size) and time.monotonic() < ends:
        time.sleep(0.02)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    before = len(ResultsFile(out).records)
    assert 1 <= before < 8
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"{8 - before} runs in" in done.stderr and "left" in done.stderr
    assert len(out.read_text().splitlines()) == 8
    assert all(math.isfinite(r["metrics"]["raw"]["all"]["mae"]) for r in read_results(out))


def test_time_and_tables(prepared: Path, tmp_path: Path) -> None:
    results, out = tmp_path / "r.jsonl", tmp_path / "times.jsonl"
    run = ["run", "--prepared", str(prepared), "--out", str(results), "--methods", "vanilla,vir"]
    assert run_bench([*run, "--seeds", "1", "--epochs", "2", "--trials", "1"]) == 0
    command = ["time", str(results), "--prepared", str(prepared), "--out", str(out)]
    assert run_bench([*command, "--time-limit", "0"]) == 3
    assert run_bench(command) == 0
    lines = {(line["data"], line["method"]): line for line in ResultsFile(out).records}
    assert len(lines) == 4 and all(line["seconds"]["fit"] > 0 for line in lines.values())
    # Trained as in the run: the same epoch was best.
    for run_line in read_results(results):
        assert lines[run_line["data"], run_line["method"]]["epochs"] == run_line["epochs"]
    tables = ["tables", str(results), "--out", str(tmp_path), "--times", str(out)]
    assert run_bench(tables) == 0
    page = (tmp_path / "test.md").read_text()
    assert f"Times were measured on {machine()}: each chosen configuration" in page
    head = next(line for line in page.splitlines() if "90% coverage many" in line)
    assert head.split(" | ")[-1] == "time |"
    vanilla = [line for line in page.splitlines() if line.startswith("| Vanilla |")]
    assert vanilla[1].endswith(" 1.0 |")


def test_choose_defaults_writes_lines_and_a_page(prepared: Path, tmp_path: Path) -> None:
    out = tmp_path / "defaults.jsonl"
    command = ["choose-defaults", "--prepared", prepared, "--out", out, "--methods", "lds, vanilla,focal-r"]
    assert run_bench([*command, "--trials", "3", "--epochs", "2"]) == 0
    page = out.with_suffix(".md").read_text()
    rows = {row.split(" | ")[0]: row.split(" | ") for row in page.splitlines() if row.startswith("| ")}
    assert [rows[f"| {title}"][2] for title in ("LDS", "Vanilla", "Focal-R")] == ["3", "1", "3"]
    assert rows["| Vanilla"][1:6] == ["+0.0 ± 0.0", "1", "-", "-", "fixed"]
    assert "3 configurations per method, or all that it has" in page


def test_search_prior_says_what_to_adopt(
    prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second configuration is better with both seeds, then with the first seed only."""
    present = get_method("vir-paper").parts.head.options["prior"]
    command = ["search-prior", "--prepared", prepared, "--trials", "2", "--out"]
    for seeds, verdict in (((0, 1), "adopt it"), ((0,), "keep the present one"), ((), "")):

        def scored(fit: Fit, *, good: tuple[int, ...] = seeds, **_: object) -> tuple[float, float]:
            better = fit.options["head.prior"] != present and fit.seed in good
            return 0.9 if better else 1.0, 0.1

        monkeypatch.setattr("tailwise.benchmark.run.defaults.score_of", scored)
        assert run_bench([*command, tmp_path / f"{len(seeds)}.jsonl"]) == 0
        said = capsys.readouterr().out
        assert said.startswith("vir-paper: ")
        assert verdict in said if verdict else "no other prior was better" in said


def test_ablations_writes_lines_and_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = {
        name: group[:2] for name, group in ablations().items() if name in ("ablation-bins", "ablation-latent")
    }
    monkeypatch.setattr("tailwise.benchmark.run.ablations.ablations", lambda: groups)
    monkeypatch.setattr("tailwise.benchmark.pages.ablation_page.ablations", lambda: groups)
    source = Source("generated", "y", partial(generated, rows=200))
    monkeypatch.setitem(SUITES, "tiny", Suite((source,), recipe=Recipe(backbone_options={"hidden": (8,)})))
    work, out = tmp_path / "work", tmp_path / "ablations.jsonl"
    command = ["ablations", "tiny", "--work", str(work), "--out", str(out), "--seeds", "1", "--epochs", "1"]
    assert run_bench([*command, "--time-limit", "0"]) == 3 and not out.with_suffix(".md").exists()
    assert run_bench(command) == 0
    assert {r["method"] for r in ResultsFile(out).records} == {c.name for g in groups.values() for c in g}
    page = out.with_suffix(".md").read_text()
    assert "## Bins" in page and "## Latent" in page and "## Kernel" not in page
    # From the lines alone, without data.
    out.with_suffix(".md").unlink()
    assert run_bench(["ablations", "--page-only", "--out", out]) == 0
    assert out.with_suffix(".md").read_text() == page
    shutil.rmtree(work)
    out.with_suffix(".md").unlink()
    assert run_bench(command) == 0
    assert out.with_suffix(".md").read_text() == page and not work.exists()


def test_estimator_runs_writes_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tailwise.benchmark.run.estimators.LIGHTGBM_TREES", 5)
    monkeypatch.setattr(
        "tailwise.benchmark.run.estimators.fit_catboost.__kwdefaults__",
        {"weighted": False, "trees": 5, "threads": 1},
    )
    sources = tuple(Source(name, "y", partial(generated, rows=200)) for name in ("one", "two"))
    monkeypatch.setitem(SUITES, "tiny", Suite(sources))
    out = tmp_path / "estimator.jsonl"
    command = ["estimator", "--suite", "tiny", "--out", out, "--estimators", "catboost,lightgbm+conformal"]
    assert run_bench([*command, "--seeds", "1", "--data", "one"]) == 0
    assert run_bench([*command, "--seeds", "2", "--time-limit", "0"]) == 3
    assert run_bench([*command, "--seeds", "1"]) == 0
    assert "2 runs in" in capsys.readouterr().err.splitlines()[-1]
    page = out.with_suffix(".md").read_text(encoding="utf-8")
    assert "4 of 4 runs" in page
    assert run_bench(["estimator-page", out, "--out", tmp_path / "again.md"]) == 0
    body = page.split("do not edit.")[1]
    assert (tmp_path / "again.md").read_text(encoding="utf-8").split("do not edit.")[1] == body
    assert run_bench([*command, "--data", "three"]) == 2
    assert "tiny has no table" in capsys.readouterr().err


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_method_of_a_plugin_runs_like_any_other(tmp_path: Path, workers: int) -> None:
    out, work = tmp_path / "out", tmp_path / "work"
    small = ["--epochs", "1", "--trials", "1", "--seeds", "1", "--out", out, "--work", work]
    command = ["suite", "quick", "--plugin", write_plugin(tmp_path), "--methods", "huber", *small]
    with forgotten():
        assert run_bench([*command, "--workers", workers]) == 0
    runs = read_results(out / "results.jsonl")
    assert sorted((r["data"], r["method"]) for r in runs) == [("abalone", "huber"), ("generated", "huber")]
    assert "| Huber |" in (out / "quick.md").read_text(encoding="utf-8")


def test_runs_of_a_plugin_whose_code_changed_are_marked_and_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, plugin = tmp_path / "out", write_plugin(tmp_path)
    code = plugin.read_text(encoding="utf-8")
    command = ["suite", "quick", "--plugin", plugin, "--methods", "vanilla,huber", "--epochs", "1"]
    command += ["--trials", "1", "--seeds", "1", "--out", out, "--work", tmp_path / "work"]

    def repeated(text: str) -> str:
        """What a new process says of runs that it repeats."""
        plugin.write_text(text, encoding="utf-8")
        with forgotten():
            capsys.readouterr()
            assert run_bench(command) == 0
        return "".join(line for line in capsys.readouterr().err.splitlines() if "repeated" in line)

    assert repeated(code) == ""
    assert repeated(f"# A comment is no change.\n{code}") == ""
    changed = code.replace("near / 2", "near / 3")
    plugin.write_text(changed, encoding="utf-8")
    with forgotten():
        load_plugin(plugin)
        assert run_bench(["tables", out / "results.jsonl", "--out", tmp_path / "page"]) == 0
    page = (tmp_path / "page" / "quick.md").read_text(encoding="utf-8")
    assert "Changed since their runs †; run them again:** Huber (plugin " in page
    assert "Changed since" not in (out / "quick.md").read_text(encoding="utf-8")
    said = repeated(changed)
    assert said.startswith("huber: 2 runs are repeated because it has changed (plugin ")
    assert len(ResultsFile(out / "results.jsonl").records) == 6
    assert repeated(changed) == ""
