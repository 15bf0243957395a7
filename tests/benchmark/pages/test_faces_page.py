"""The page of faces: metrics by region, the dial, and what is said about VIR."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tailwise.benchmark.pages.faces_page import METRICS, dial_table, region_table, section, verdict
from tailwise.benchmark.pages.statistics import Results
from tailwise.metrics import REGIONS
from tests.benchmark.conftest import run_bench


def _record(method: str, seed: int, error: float, **more: Any) -> dict[str, Any]:
    table = {
        region: {m: 0.9 if m == "coverage" else error + place for m in METRICS}
        for place, region in enumerate(REGIONS)
    }
    return {
        "suite": "utkface",
        "data": "utkface",
        "method": method,
        "title": method.upper(),
        "uncertainty": "none",
        "seed": seed,
        "digest": "x",
        "machine": "here",
        "recipe": {"backbone": "resnet18", "patience": None},
        "rows": {"train": 19_756, "valid": 1_677, "test": 1_677},
        "test_rows": {"many": 3, "medium": 2, "few": 1},
        "metrics": {"raw": table, "calibrated": table},
        **more,
    }


RECORDS = [
    _record(method, seed, error + 0.1 * seed, **more)
    for seed in range(2)
    for method, error, more in (
        ("vir[dial for few shots]", 3.0, {"emphasis": 0.5}),
        ("vir[dial]", 4.0, {"emphasis": 0.1}),
        ("vir", 5.0, {}),
        ("vanilla", 6.0, {}),
        ("vir-encoder", 7.0, {}),
    )
]


def test_rows_follow_the_suite_and_the_best_are_marked() -> None:
    table = region_table(Results(RECORDS), "mae", ["vanilla", "vir"])
    assert table.rows[1] == ["VIR", "5.05 ± 0.07", "6.05 ± 0.07", "7.05 ± 0.07", "8.05 ± 0.07"]
    assert table.best == {(1, column) for column in range(1, 5)}
    coverage = region_table(Results(RECORDS), "coverage", ["vanilla", "vir"])
    assert "nearest to 0.9" in coverage.caption


def test_the_dial_shows_the_emphasis_of_each_seed() -> None:
    table = dial_table(Results(RECORDS))
    assert table is not None
    assert [row[:2] for row in table.rows] == [
        ["VIR[DIAL]", "0.1, 0.1"],
        ["VIR[DIAL FOR FEW SHOTS]", "0.5, 0.5"],
    ]
    assert dial_table(Results([r for r in RECORDS if "emphasis" not in r])) is None


def test_the_verdict_compares_with_vanilla_and_names_the_lowest_few_shot_error() -> None:
    lines = verdict(Results(RECORDS))
    assert "**VIR**: lower MAE than Vanilla in 4 of 4 regions (all, many, medium, few)" in lines[1]
    assert lines[1].endswith("place among 3 methods over all rows: MAE 1, NLL 1, CRPS 1.")
    assert "in 0 of 4 regions; place among 3 methods over all rows: MAE 3" in lines[0]
    assert lines[2] == "- Lowest few-shot MAE: VIR[DIAL FOR FEW SHOTS], 6.05 ± 0.07 years."


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    results, out = tmp_path / "results.jsonl", tmp_path / "faces.md"
    results.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    assert run_bench(["faces", str(results), "--out", str(out)]) == 0
    page = out.read_text()
    assert page.count("**MAE in years") == 1 and "19,756 training, 1,677 validation" in page
    results.write_text(json.dumps(_record("vir", 0, 1.0) | {"data": "other"}) + "\n" + results.read_text())
    with pytest.raises(ValueError, match="runs on other, utkface: name the results of one suite"):
        section(results)


def test_a_method_with_fewer_seeds_is_named(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    assert "; seeds 0, 1. Recipe" in section(path)
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS[:-1]))
    assert "; seeds 0, 1 (fewer: VIR-ENCODER 1). Recipe" in section(path)
