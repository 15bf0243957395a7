"""The page of STS-B-DIR beside the paper: what is reached is said cell by cell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tailwise.benchmark.pages.statistics import Results
from tailwise.benchmark.pages.stsb_page import PAPER, count_reached, metric_table, section, target_table
from tailwise.metrics import REGIONS

METRICS = ("mse", "mae", "pearson", "spearman", "nll", "ause", "ause_reference")


def _record(method: str, seed: int, factor: float) -> dict[str, Any]:
    """A run whose figures are the paper's VIR row times a factor (a half of it off perfect for ranks)."""

    def value(metric: str, region: str) -> float:
        target = PAPER.get(metric, PAPER["ause"])["vir"][REGIONS.index(region)]
        return 1 - (1 - target) * factor if metric in ("pearson", "spearman") else target * factor

    table = {region: {metric: value(metric, region) for metric in METRICS} for region in REGIONS}
    return {
        "suite": "stsb-paper",
        "data": "stsb",
        "method": method,
        "title": method.upper(),
        "uncertainty": "none" if method == "vanilla" else "aleatoric",
        "seed": seed,
        "digest": "x",
        "machine": "here",
        "recipe": {"backbone": "bilstm-pair", "patience": None},
        "rows": {"train": 10, "valid": 5, "test": 6},
        "test_rows": {"many": 3, "medium": 2, "few": 1},
        "metrics": {"raw": table, "calibrated": table},
    }


def _results(vir: float) -> list[dict[str, Any]]:
    return [_record("vanilla", seed, 1.2) for seed in range(2)] + [
        _record("vir", seed, vir) for seed in range(2)
    ]


@pytest.mark.parametrize(("factor", "reached"), [(0.9, 24), (1.1, 0)])
def test_reached_cells_are_counted(factor: float, reached: int) -> None:
    results = Results(_results(factor))
    assert count_reached(results) == reached
    said = [row[3].split()[-1] for row in target_table(results).rows]
    assert said == (["yes"] if reached else ["no"]) * 24


def test_paper_rows_stand_below_ours_and_the_best_of_ours_is_marked() -> None:
    table = metric_table(Results(_results(0.9)), "mse")
    assert [row[0] for row in table.rows] == ["VANILLA", "(paper)", "VIR", "(paper)"]
    assert table.rows[3][1:] == ["0.892", "0.795", "0.899", "0.781"]
    assert table.best == {(2, 1), (2, 2), (2, 3), (2, 4)}


def test_methods_without_uncertainty_have_an_nll_once_they_are_calibrated() -> None:
    results = Results(_results(0.9))
    assert [row[0] for row in metric_table(results, "nll").rows] == ["VIR", "(paper)"]
    assert [row[0] for row in metric_table(results, "nll", calibrated=True).rows] == ["VANILLA", "VIR"]


def test_runs_on_other_data_are_refused(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    records = [{**record, "data": "abalone"} for record in _results(0.9)]
    results.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    with pytest.raises(ValueError, match="has runs on abalone, not only on stsb"):
        section(results)


def test_presets_stand_beside_the_default_and_are_told_where_it_is_better(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    records = [*_results(0.9), *(_record("vir-paper", seed, 1.1) for seed in range(2))]
    results.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    page = section(results)
    assert "reaches 0 of the 24 cells" in page and "The default is better in 24 of 24." in page
    head = (
        "| cell | paper | VIR, as trained | VIR, calibrated | VIR-PAPER, as trained | VIR-PAPER, calibrated |"
    )
    assert head in page


def test_rows_come_as_the_configuration_lists_them_and_say_which_seeds_they_lack(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    records = [
        _record("vir", 0, 0.9),
        _record("vir", 1, 0.9),
        {**_record("vanilla", 1, 1.2), "fixed": {"lr": 2, "smoothing": {"below": 30}}},
    ]
    results.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    page = section(results)
    assert "seeds 0, 1. Recipe" in page and "Exceptions: VANILLA: lr 2, smoothing.below 30." in page
    rows = [row[0] for row in metric_table(Results(records), "mse").rows]
    assert rows == ["VANILLA (seeds 1 only)", "(paper)", "VIR", "(paper)"]


def test_ablations_stand_in_a_table_of_their_own(tmp_path: Path) -> None:
    variants = {**_record("vir[smoothing=none]", 0, 0.5), "title": "VIR, smoothing none", "fixed": {"kl": 0}}
    records = [_record("vanilla", 0, 1.2), _record("vir", 0, 0.9), variants]
    assert [row[0] for row in metric_table(Results(records), "mse").rows][::2] == ["VANILLA", "VIR"]
    results = tmp_path / "results.jsonl"
    results.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    page = section(results)
    assert page.count("| VIR, smoothing none |") == 1 and "kl 0" not in page
    assert f"| VIR, smoothing none | {0.5 * 0.892:.3f} |" in page
    assert "VIR with parts removed" not in section(_without(results, "vir[smoothing=none]"))


def _without(results: Path, method: str) -> Path:
    lines = results.read_text("utf-8").splitlines(keepends=True)
    results.write_text("".join(line for line in lines if json.loads(line)["method"] != method), "utf-8")
    return results


def test_the_papers_rows_are_whole() -> None:
    for rows in PAPER.values():
        assert "vir" in rows
        for row in rows.values():
            assert len(row) == len(REGIONS)
