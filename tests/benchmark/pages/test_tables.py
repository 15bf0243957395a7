"""Tables, the verdict, and the whole way from a suite to its page."""

import csv
import io
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from tailwise.benchmark import Recipe, bench
from tailwise.benchmark.__main__ import main
from tailwise.benchmark.pages.markup import Table
from tailwise.benchmark.pages.prose import verdict
from tailwise.benchmark.pages.statistics import HEADLINES, Results, compare
from tailwise.benchmark.pages.tables import summary_csv, write_tables
from tailwise.benchmark.run.results import ResultsFile
from tailwise.benchmark.run.runs import OF_THE_MEAN, OF_THE_SPREAD
from tailwise.metrics import REGIONS


def run(method: str, data: str, seed: int, level: float) -> dict[str, object]:
    values = dict.fromkeys(OF_THE_MEAN + OF_THE_SPREAD, level)
    metrics = {
        "raw": {r: dict(values) for r in REGIONS},
        "calibrated": {r: dict.fromkeys(OF_THE_SPREAD, level) for r in REGIONS},
    }
    metrics["raw"]["medium"]["mae"] = None  # type: ignore[assignment]  # a region without rows
    return {
        "data": data, "method": method, "title": method.upper(), "seed": seed, "digest": f"{data}{seed}",
        "machine": "test", "recipe": {"trials": 2, "criterion": "balanced_mae", "epochs": 3},
        "rows": {"train": 9, "table": 20}, "features": 3, "bins": 4,
        "test_rows": {"many": 1, "medium": 2, "few": 3}, "seconds": {"fit": 2.0}, "metrics": metrics,
        "options": {"lr": 0.1},
        **({"search": {"lr": [0.1, 0.2]}, "trials": [{}, {}]} if seed == 0 else {}),
    }  # fmt: skip


@pytest.fixture
def records() -> list[dict[str, object]]:
    rng = np.random.default_rng(0)
    levels = {"vanilla": 2.0, "vir": 1.0, "other": 0.5}
    return [
        run(method, data, seed, level * scale + 0.01 * rng.random())
        for method, level in levels.items()
        for data, scale in (("x", 1.0), ("y", 10.0))
        for seed in range(5)
    ]


def test_markdown_and_latex() -> None:
    table = Table("A & B", ["m", "v_1"], [["a|b", "1 ± 2"], ["c", "<3"]], frozenset({(1, 1)}))
    assert table.markdown().splitlines() == [
        "**A & B**", "", "| m | v_1 |", "| --- | --: |", r"| a\|b | 1 ± 2 |", "| c | **<3** |",
    ]  # fmt: skip
    latex = table.latex()
    assert r"\caption{A \& B}" in latex and r"v\_1" in latex and r"1 $\pm$ 2" in latex
    assert r"c & \textbf{$<$3} \\" in latex and latex.count(r"\begin") == latex.count(r"\end") == 2


def test_verdict_says_to_whom_vir_loses(records: list[dict[str, object]]) -> None:
    text = verdict(Results(records))
    line = next(line for line in text.splitlines() if line.startswith("- **MAE few**"))
    assert "average rank 2.00 of 3 (best: OTHER, 1.00)" in line
    told = "better than 1, undecided with 0, worse than 1 (OTHER by 49.9%)"
    assert f"other seeds: {told}; to expect of other data sets: {told}." in line
    assert "x MAE few 2 of 3, first OTHER" in text
    single = verdict(Results(r for r in records if r["data"] == "x"))
    assert f"other seeds: {told.replace('49.9', '49.')[:-3]}" in single and "other data sets" not in single
    medium = next(line for line in text.splitlines() if line.startswith("- **MAE medium**"))
    assert "average rank - of 3" in medium and medium.count("undecided with 2") == 2


def test_csv_has_every_figure(records: list[dict[str, object]]) -> None:
    results = Results(records)
    rows = list(csv.DictReader(io.StringIO(summary_csv(results))))
    assert len(rows) == 3 * 2 * 2 * len(REGIONS)
    row = next(r for r in rows if (r["data"], r["method"], r["region"]) == ("y", "vir", "few"))
    values = [r["metrics"]["raw"]["few"]["mae"] for r in records if (r["data"], r["method"]) == ("y", "vir")]  # type: ignore[index]
    assert float(row["mae_mean"]) == pytest.approx(np.mean(values), rel=1e-4)
    assert float(row["mae_std"]) == pytest.approx(np.std(values, ddof=1), rel=1e-3)
    assert next(r for r in rows if r["region"] == "medium")["mae_mean"] == ""


def test_files_are_written_whole(records: list[dict[str, object]], tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "r.jsonl")
    for record in records:
        file.append(record)
    written = write_tables(tmp_path / "r.jsonl", tmp_path / "out", title="Toys")
    assert [p.name for p in written] == ["tabular.md", "tabular.csv", "tabular.tex"]
    text = written[0].read_text()
    assert text.startswith("# Toys\n") and "30 runs of 30" in text
    for heading in ("What it shows", "Overview", "Against VIR", "Calibration", "Data sets", "Tuning"):
        assert f"\n## {heading}\n" in text
    assert "| OTHER | **1.00** |" in text and "lr 0.1, 0.2" in text and "nan" not in text
    by_seed, by_data = (compare(Results(records), HEADLINES[0], over=over)[1] for over in ("seeds", "data"))
    cells = [f"{c.adjusted:.3f} | {c.verdict()}".replace("0.000", "<0.001") for c in (by_seed, by_data)]
    row = next(line for line in text.splitlines() if line.startswith("| OTHER | -49."))
    assert "| 2/2 |" in row and all(f"| {cell} |" in row for cell in cells) and by_seed.p < by_data.p
    assert "Over the 2 data sets" in text
    assert "time" not in next(line for line in text.splitlines() if "90% coverage many" in line)
    assert main(["tables", str(tmp_path / "r.jsonl"), "--out", str(tmp_path / "again")]) == 0
    assert (tmp_path / "again" / "tabular.csv").read_text() == written[1].read_text()
    first, *others = (shlex.split(line) for line in re.findall(r"Generated by `([^`]+)`", text))
    assert not others and first[:3] == ["python", "-m", "tailwise.benchmark"]
    written[0].unlink()
    assert main(first[3:]) == 0  # the command that the page names
    assert written[0].read_text() == text
    with pytest.raises(ValueError, match="no run of 'virr' to compare with; did you mean 'vir'"):
        write_tables(tmp_path / "r.jsonl", tmp_path, reference="virr")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"recipe": {"trials": 2, "epochs": 9}}, "vanilla ran with epochs = 3, vir with epochs = 9"),
        ({"suite": "elsewhere"}, "vanilla ran with suite = None, vir with suite = elsewhere"),
    ],
)
def test_one_page_is_for_one_recipe(
    records: list[dict[str, object]], tmp_path: Path, other: dict[str, object], message: str
) -> None:
    file = ResultsFile(tmp_path / "r.jsonl")
    for record in records:
        file.append({**record, **(other if record["method"] == "vir" else {})})
    with pytest.raises(ValueError, match=message):
        write_tables(tmp_path / "r.jsonl", tmp_path)


def test_quick_suite_end_to_end(tmp_path: Path) -> None:
    lines: list[str] = []
    recipe = Recipe().within(epochs=2, trials=1)
    options = {"out": tmp_path / "out", "work": tmp_path / "work", "recipe": recipe, "progress": False}
    methods = {"methods": "vanilla,vir", "seeds": (0,)}
    summary = bench("quick", **options, **methods, report=lines.append)  # type: ignore[arg-type]
    assert summary.done == 4 and not summary.failed
    assert "## What it shows" in (tmp_path / "out" / "quick.md").read_text()
    page = (tmp_path / "out" / "quick.md").read_text()
    assert "## Times" not in page
    again = bench("quick", **options, **methods, times=True)  # type: ignore[arg-type]
    assert again.done == 0
    page = (tmp_path / "out" / "quick.md").read_text()
    assert "## Times" in page and "multiple of Vanilla's (geometric mean)" in page
    assert len(ResultsFile(tmp_path / "out" / "times.jsonl").records) == 4
    with pytest.raises(ValueError, match="unknown suite"):
        bench("quack", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--workers", "0", "'0' is not a whole number of at least 1"),
        ("--epochs", "-1", "'-1' is not a whole number of at least 1"),
        ("--trials", "two", "'two' is not a whole number of at least 1"),
        ("--seeds", "0", "'0' is not a whole number of at least 1"),
        ("--seeds", "0,x", "'x' is not a whole number of at least 0"),
    ],
)
def test_wrong_numbers_are_usage_errors(
    option: str, value: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["suite", "quick", option, value])
    assert caught.value.code == 2
    assert f"argument {option}: {message}" in capsys.readouterr().err


def test_command_line_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work, out = str(tmp_path / "work"), str(tmp_path / "r.jsonl")
    prepare = ["prepare", "--suite", "quick", "--out", work, "--seeds", "1", "--max-rows", "150"]
    assert main([*prepare, "--per-bin", "3"]) == 0
    run = ["run", "--prepared", work, "--out", out, "--methods", "vanilla", "--seeds", "0,0", "--epochs", "1"]
    run = [*run, "--trials", "1", "--data", "abalone"]
    assert main([*run, "--time-limit", "0"]) == 3
    assert main(run) == 0
    told = capsys.readouterr().err
    assert "0 runs in 0 s, 2 left, 0 failed" in told and "1/2 abalone vanilla seed 0: balanced MAE" in told
    with pytest.raises(SystemExit):
        main([])
    suite = ["suite", "quick", "--methods", "vir", "--seeds", "1", "--epochs", "1", "--trials", "1"]
    assert main([*suite, "--out", str(tmp_path / "o"), "--work", str(tmp_path / "w")]) == 0
