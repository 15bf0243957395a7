"""Pages are what their command writes; statistics by hand."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from research.tests.conftest import RESULTS
from tailwise.report.results import read_results
from tailwise_bench.choose import choose_contenders
from tailwise_bench.cli import app
from tailwise_bench.picture import write_picture
from tailwise_bench.pivot import number, pivot, with_spread
from tailwise_bench.recipe import Recipe
from tailwise_bench.statistics import MARK, Figure, Results, effect, holm, p_values, planned
from tailwise_bench.suites import BUNDLED

COMMIT = re.compile(r"commits? [0-9a-f]{7}")
PAGES = [name for name in BUNDLED if (RESULTS / f"{name}.jsonl").is_file()]


@pytest.mark.slow  # a part of `make docs`
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_its_command_writes(name: str, tmp_path: Path) -> None:
    for lines in RESULTS.glob(f"{name}*.jsonl"):
        (tmp_path / lines.name).symlink_to(lines)
    done = CliRunner().invoke(app, ["page", name, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    written = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
    stored = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    assert tables(written) == tables(stored), f"tailwise-bench page {name}"
    assert f"`tailwise-bench page {name}`" in written


def tables(page: str) -> list[str]:
    """Lines of tables, without marks of methods that have changed since."""
    return [line.replace(" †", "") for line in page.splitlines() if line.startswith("|")]


@pytest.mark.slow  # a part of `make docs`
def test_pictures_in_the_text_are_what_their_command_draws(tmp_path: Path) -> None:
    root, command = RESULTS.parents[1], re.compile(r"tailwise-bench page (\S+) --picture (\S+\.svg)")
    texts = [page.read_text("utf-8") for page in (root / "docs").glob("*.md")]
    (pair,) = {pair for text in texts for pair in command.findall(text)}
    drawn = write_picture(Results(read_results(RESULTS / f"{pair[0]}.jsonl")), tmp_path / Path(pair[1]).name)
    svgs = [path.read_text("utf-8").replace(MARK, "") for path in (drawn, root / pair[1])]
    assert svgs[0] == svgs[1]  # without marks of methods that have changed since


def test_every_page_is_listed_and_names_a_command_or_its_commit() -> None:
    listed = (RESULTS / "README.md").read_text(encoding="utf-8")
    for page in RESULTS.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert page.name == "README.md" or f"]({page.name})" in listed, page.name
        assert re.search(r"tailwise-bench (run|page)|python (research|benchmarks)/|commit", text), page.name


def test_every_stored_run_has_a_commit() -> None:
    pages = {path.stem: path.read_text("utf-8") for path in RESULTS.glob("*.md")}
    for path in RESULTS.glob("*.jsonl"):
        traces = [json.loads(line).get("trace", {}) for line in path.read_text(encoding="utf-8").splitlines()]
        by_page = any(
            COMMIT.search(text) for name, text in pages.items() if path.stem == name or path.name in text
        )
        assert path.stem == "demo" or by_page or all(trace.get("commit") for trace in traces), path.name


def records(errors: dict[str, list[list[float]]]) -> list[dict[str, Any]]:
    """Runs by method, data set and seed."""
    return [
        {
            "data": f"d{d}",
            "method": m,
            "title": m.upper(),
            "seed": s,
            "digest": "",
            "metrics": {"raw": {"all": {"mae": error}}},
        }
        for m, by_data in errors.items()
        for d, by_seed in enumerate(by_data)
        for s, error in enumerate(by_seed)
    ]


def test_ranks_and_ratios_by_hand() -> None:
    results = Results(records({"a": [[1.0, 1.0], [4.0, 4.0]], "b": [[2.0, 2.0], [2.0, 2.0]]}))
    mae = Figure("mae")
    assert results.average_ranks(mae) == {"a": 1.5, "b": 1.5}
    assert results.relative(mae, "b", "a") == pytest.approx(math.sqrt(2.0 * 0.5))
    assert results.by_seed(mae, "b", "a") == pytest.approx([0.0, 0.0])


def test_tests_are_paired_t_tests_with_holms_correction() -> None:
    rng = np.random.default_rng(0)
    errors = {
        m: np.exp(rng.normal(shift, 0.1, (3, 6))).tolist() for m, shift in (("a", 0), ("b", 1), ("c", 0.02))
    }
    results = Results(records(errors))
    found = p_values(results, Figure("mae"), "a")
    logs = {m: np.log(np.array(e) / np.array(errors["a"])).mean(axis=0) for m, e in errors.items()}
    assert results.by_seed(Figure("mae"), "b", "a") == pytest.approx(logs["b"])
    alone = [stats.ttest_1samp(logs[method], 0).pvalue for method in ("b", "c")]
    assert [found["b"], found["c"]] == pytest.approx([2 * alone[0], alone[1]])
    assert holm([0.01, math.nan, 0.04, 0.03]) == [0.03, pytest.approx(math.nan, nan_ok=True), 0.06, 0.06]


def test_a_pivot_prints_its_best_cell_in_bold() -> None:
    errors = {"a": 1.0, "b": 2.0}
    text = pivot("Errors", {"error": lambda m: (number(errors[m]), errors[m])}, {"a": "A|1", "b": "B"})
    assert text.splitlines()[2:] == [
        "| method | error |",
        "|---|---:|",
        "| A\\|1 | **1.00** |",
        "| B | 2.00 |",
    ]
    assert with_spread(0.01234, 0.001) == "0.0123 ± 0.0010" and with_spread(math.nan, 1.0).startswith("-")


def test_the_command_names_mistakes() -> None:
    run = CliRunner()
    assert "unknown suite 'tabulr'; did you mean 'tabular'" in str(
        run.invoke(app, ["run", "tabulr"]).exception
    )
    assert run.invoke(app, ["run", "quick", "--seeds", "x"]).exit_code == 2


def test_an_effect_is_a_stratified_interval_over_data_sets_and_seeds() -> None:
    rng = np.random.default_rng(1)
    errors = {
        m: [np.exp(rng.normal(shift, 0.1, n)).tolist() for n in (5, 3)]
        for m, shift in (("vir", 0), ("lds", 1), ("fds", 0.05), ("other", 2))
    }
    results, mae = Results(records(errors)), Figure("mae")
    changes_of_lds = [
        np.log(np.array(a) / np.array(b)) for a, b in zip(errors["vir"], errors["lds"], strict=True)
    ]
    found = effect(results, mae, "lds", "vir")
    assert found.change == pytest.approx(np.mean([d.mean() for d in changes_of_lds]))
    parts = [d.var(ddof=1) / d.size for d in changes_of_lds]
    df = sum(parts) ** 2 / (parts[0] ** 2 / 4 + parts[1] ** 2 / 2)
    error = math.sqrt(sum(parts)) / 2
    assert (found.low, found.high) == pytest.approx(stats.t.interval(0.95, df, found.change, error))
    assert found.p == pytest.approx(2 * stats.t.sf(abs(found.change) / error, df))

    family = {of.rival: of for of in planned(results, mae)}
    assert list(family) == ["fds", "lds"], "in the order of the plan, without others"
    assert family["lds"].verdict == "better" and family["lds"].adjusted == pytest.approx(2 * found.p)
    assert effect(Results(records({"vir": [[1.0]], "lds": [[2.0]]})), mae, "lds", "vir").verdict == "open"


def test_rows_of_published_weights_are_beside_tuned_ones() -> None:
    rows = {c.name: c for c in choose_contenders(["published"])}
    recipe = Recipe()
    assert {name: row.space(recipe).keys() for name, row in rows.items()} == dict.fromkeys(
        ["inv-published", "sqinv-published", "lds-fds-published"], recipe.search.keys()
    )
    tuned = [{**record, "search": {"weights.power": [0.5]}} for record in records({"sqinv": [[1.0]]})]
    assert Results(tuned).titles == {"sqinv": "SQINV, tuned"}
