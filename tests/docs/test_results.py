"""Pages of results are what the commands on them write, and what is said of them elsewhere follows."""

import json
import re
import shlex
import shutil
import statistics
from collections.abc import Iterable
from pathlib import Path

import pytest

from tailwise.benchmark import choose_contenders, read_results
from tailwise.benchmark.__main__ import main
from tailwise.benchmark.pages.markup import with_spread
from tailwise.benchmark.pages.published import PAPER
from tailwise.benchmark.pages.statistics import Figure, Results, compare
from tailwise.benchmark.run.ablations import is_ablation
from tailwise.benchmark.run.defaults import decisions
from tailwise.benchmark.run.results import ResultsFile

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "results"
WRITTEN = re.compile(
    r"^(?:Generated|Written) by `(?:python -m tailwise\.benchmark|tailwise bench) ([^`]+)`", re.M
)
REGION_OF = {"rare": "few", "common": "many", "all": "all"}
PAGES = [page for page in sorted(FOLDER.rglob("*.md")) if WRITTEN.search(page.read_text(encoding="utf-8"))]


def told(page: str) -> str:
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def test_every_kind_of_page_is_found() -> None:
    names = {page.stem for page in PAGES}
    assert names == {"ablations", "defaults", "stsb", "stsb-modern", "stsb-paper", "tabular"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_what_its_command_writes(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for lines in [*FOLDER.rglob("*.jsonl"), *FOLDER.rglob("steps.txt")]:
        copy = tmp_path / lines.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(lines, copy)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TAILWISE_DATA", raising=False)
    text = page.read_text(encoding="utf-8")
    commands = WRITTEN.findall(text)
    assert len(commands) == 1
    assert main(shlex.split(commands[0])) == 0
    assert (tmp_path / page.relative_to(ROOT)).read_text(encoding="utf-8") == text


def readme_rows() -> dict[tuple[str, str], list[str]]:
    """Cells of the README's table of results by data and labels; an empty first cell repeats the last one."""
    rows: dict[tuple[str, str], list[str]] = {}
    data = ""
    for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip(" *") for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 5 and cells[1] in REGION_OF:
            data = cells[0] or data
            rows[data, cells[1]] = cells[2:]
    return rows


def place(ranks: dict[str, float], method: str) -> int:
    """Place by average rank, 1 being best; equal ranks count against the method."""
    return sum(rank <= ranks[method] for rank in ranks.values())


def stsb(name: str) -> Results:
    return Results(read_results(FOLDER / f"stsb-{name}" / "results.jsonl"))


def thirteen(results: Results) -> list[str]:
    """The methods of the paper's table."""
    names = [m for m in results.methods if m not in ("vir-paper", "vir-reference") and not is_ablation(m)]
    assert len(names) == 13
    return names


def test_the_table_of_results_in_the_readme() -> None:
    tables = Results(read_results(FOLDER / "results.jsonl"))
    seeds = len(tables.runs("abalone", "vir"))
    title = f"seven tables, {seeds} seeds, MAE relative to the plain network"
    expected = {}
    for labels, region in REGION_OF.items():
        figure = Figure("mae", region)
        ranks = tables.average_ranks(figure)
        ratio = f"{tables.relative(figure, 'vir', 'vanilla'):.2f}"
        expected[title, labels] = ["1", ratio, f"{place(ranks, 'vir')} of {len(ranks)}"]
    for name, data in (
        ("modern", "sentence pairs (STS-B-DIR), frozen sentence vectors"),
        ("paper", "sentence pairs, the paper's BiLSTM from scratch"),
    ):
        results = stsb(name)
        title = f"{data}, {len(results.runs('stsb', 'vir'))} seeds, MSE"
        for labels in ("rare", "all"):
            errors = {
                m: results.mean_std(Figure("mse", REGION_OF[labels]), "stsb", m) for m in thirteen(results)
            }
            order = sorted(errors, key=lambda m: errors[m][0])
            said = {0: "best of 13", 12: "worst of 13"}[order.index("vir")]
            expected[title, labels] = [with_spread(*errors[m]) for m in ("vanilla", "vir")] + [said]
    assert len(tables.data) == 7 and readme_rows() == expected


def test_what_is_said_of_sentence_pairs() -> None:
    text = told("docs/results/README.md")
    paper = stsb("paper")
    figure, few = Figure("mse"), Figure("mse", "few")

    def mse(method: str, figure: Figure = figure) -> str:
        return with_spread(*paper.mean_std(figure, "stsb", method))

    assert f"VIR's predictor {mse('vir-predictor')}" in text
    assert f"the plain network {mse('vanilla')}" in text
    assert f"and VIR {mse('vir')}, the worst of our thirteen" in text
    least = min(row[0] for row in PAPER["mse"].values())
    assert (
        f"all thirteen methods have a lower test error than any method of the paper's table (MSE {least})"
        in text
    )
    ours = {m: paper.mean_std(figure, "stsb", m)[0] for m in thirteen(paper)}
    assert max(ours.values()) < least and max(ours, key=ours.__getitem__) == "vir"
    rare = {m: paper.mean_std(few, "stsb", m)[0] for m in thirteen(paper)}
    target = PAPER["mse"]["vir"][3]
    assert max(rare, key=rare.__getitem__) == "vir" and min(rare.values()) > target
    assert (
        f"VIR {mse('vir', few)} is the worst, the plain network {mse('vanilla', few)}, and none reaches the "
        f"paper's {target}"
    ) in text
    seeds = {len(paper.runs("stsb", m)) for m in ours}
    assert seeds == {3} and "the worst of our thirteen (3 seeds)" in text


def test_what_is_said_of_the_parts_of_vir() -> None:
    text = told("docs/results/README.md")
    files = (FOLDER / f"stsb-{name}" / "results.jsonl" for name in ("paper", "modern"))
    paper, modern = (Results(read_results(file)) for file in files)

    def of(results: Results, variant: str, metric: str = "mse") -> str:
        method = f"vir[smoothing={variant}]" if variant else "vir"
        return with_spread(*results.mean_std(Figure(metric, calibrated=metric == "ause"), "stsb", method))

    unsmoothed, plain = "none", "none and plain latents"
    assert f"the test MSE is {of(paper, unsmoothed)} instead of {of(paper, '')}" in text
    assert f"without Gaussian latents as well it is {of(paper, plain)} (3 seeds)" in text
    assert f"AUSE {of(paper, unsmoothed, 'ause')} with them and {of(paper, plain, 'ause')} without" in text
    assert f"{of(modern, plain)} to {of(modern, unsmoothed)}, 5 seeds" in text
    assert f"Smoothing gains nothing beyond chance ({of(modern, '')})" in text
    group = {contender.name for contender in choose_contenders("ablation-smoothing")}
    tables = Results(r for r in read_results(FOLDER / "ablations.jsonl") if r["method"] in group)
    tested = {c.method: c for c in compare(tables, Figure("balanced_mae"), "vir[fixed]", over="seeds")}
    assert min(tested[f"vir[smoothing={v}]"].adjusted for v in (unsmoothed, plain)) > 0.05
    worse = "vir[smoothing=at inference too]"
    for results in (paper, modern):
        errors = {m: results.mean_std(Figure("mse"), "stsb", m)[0] for m in results.methods}
        assert all(errors[worse] > errors[m] for m in errors if m == "vir" or "smoothing=none" in m)
    assert tested[worse].verdict() == "worse"
    decoded = "vir[reconstruction=of the input]"
    error = with_spread(*modern.mean_std(Figure("mse"), "stsb", decoded))
    assert f"by no more than chance ({error} on frozen vectors; not run behind the BiLSTM)" in text
    assert decoded not in paper.methods
    group = {contender.name for contender in choose_contenders("ablation-reconstruction")}
    tables = Results(r for r in read_results(FOLDER / "ablations.jsonl") if r["method"] in group)
    tested = {c.method: c for c in compare(tables, Figure("balanced_mae"), "vir[fixed]", over="seeds")}
    assert tested[decoded].verdict() == "open"


def test_what_the_readme_says_of_intervals() -> None:
    rows = [json.loads(line) for line in (FOLDER / "coverage.jsonl").read_text("utf-8").splitlines()]

    def mean(method: str, figure: str) -> float:
        return statistics.fmean(row[f"few/{figure}"] for row in rows if row["method"] == method)

    def percent(methods: Iterable[str]) -> list[str]:
        return [f"{mean(method, 'coverage'):.0%}" for method in methods]

    wide = [
        f"{mean(f'{peer}, same calibration', 'width') / mean('TailRegressor', 'width') - 1:.0%}"
        for peer in ("CatBoost", "NGBoost")
    ]
    ours, *own = percent(("TailRegressor", "CatBoost, own", "NGBoost, own"))
    same = percent(("CatBoost, same calibration", "NGBoost, same calibration"))
    assert (
        f"{ours} of `TailRegressor`'s 90% intervals hold for rare labels on the seven tables. CatBoost's and "
        f"NGBoost's own hold {own[0]} and {own[1]}; with our calibration they hold {same[0]} and {same[1]} "
        f"and are {wide[0]} and {wide[1]} wider than ours"
    ) in told("README.md")


def test_what_the_readme_says_of_the_tables() -> None:
    results = Results(read_results(FOLDER / "results.jsonl"))
    registered = {contender.name for contender in choose_contenders("all")}
    assert registered <= set(results.methods)
    assert f"VIR, NeurIPS 2023) and {len(registered) - 1} other methods" in told("README.md")
    assert f"Which of {len(results.methods)} contenders wins where" in told("docs/index.md")
    ranks = results.average_ranks(Figure("nll", "few", calibrated=True))
    assert min(ranks, key=ranks.__getitem__) == "vir"
    better = [c for c in compare(results, Figure("mae"), over="seeds") if c.verdict() == "better"]
    total = len(results.methods)
    assert (
        f"On tables, VIR's calibrated NLL for rare labels has the best average rank of all {total}. Over all "
        f"labels, {len(better)} of the {total - 1} others have a lower error beyond chance in the seeds"
    ) in told("README.md")


def test_what_is_said_of_the_defaults() -> None:
    text = told("docs/results/README.md")
    found = {d.method: d for d in decisions(ResultsFile(FOLDER / "defaults.jsonl").records)}
    changed = [name for name, d in found.items() if d.adopted and name != "vir"]
    assert len(changed) == 11 and "Eleven other methods changed too" in text
    lines = (FOLDER / "defaults.md").read_text(encoding="utf-8").splitlines()
    rows = {cells[0]: cells for cells in (line.strip("| ").split(" | ") for line in lines)}
    for title in ("LDS + FDS + DER", "DER", "LDS"):
        check = rows[title][4].removeprefix("-")
        assert f"{title} gained {check}%" in text or f"{title} {check}%" in text
    assert f"{rows['VIR'][4].removeprefix('-')}% with the four others" in text
