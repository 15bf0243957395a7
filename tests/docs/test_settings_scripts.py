"""The studies of TailRegressor's settings in benchmarks/: stopping, bases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import bases, development, stopping
from tailwise.estimator import TailRegressor
from tailwise.model.base import AUTO
from tailwise.model.settings import table_config

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def stored(study: development.Study) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RESULTS / study.results.name).read_text().splitlines()]


@pytest.mark.parametrize("study", [stopping.STUDY, bases.STUDY], ids=["stopping", "bases"])
def test_the_page_is_what_its_lines_give(study: development.Study) -> None:
    page = (RESULTS / study.results.name).with_suffix(".md")
    assert study.page(stored(study)) == page.read_text(encoding="utf-8")


def test_networks_train_as_the_rule_chose() -> None:
    name = stopping.chosen(stopping.STUDY, stored(stopping.STUDY))
    (setting,) = (s for s in stopping.SETTINGS if s.name == name)
    for rows in (500, 4000):
        wanted, own = setting.parameters(rows), table_config(round(0.8 * rows))
        assert (own["lr"], own["batch_size"]) == (wanted["lr"], wanted["batch_size"])
    assert TailRegressor().patience == setting.patience


def test_the_base_is_the_one_that_the_rule_chose() -> None:
    assert bases.BASES[bases.chosen(bases.STUDY, stored(bases.STUDY))] == AUTO


def line(study: development.Study, seed: int = 0, **changes: dict[str, float]) -> dict[str, Any]:
    """A results line in which every figure of every setting is 1, but for some changes."""
    every = dict.fromkeys([*development.RATIOS, *development.MEANS], 1.0)
    figures = {name: {**every, **changes.get(name.lower(), {})} for name in study.settings}
    return {"data": "made", "seed": seed, "rows": 500, "figures": figures}


def test_of_bases_that_are_as_good_the_lightest_is_taken() -> None:
    study = bases.STUDY
    assert bases.chosen(study, [line(study)]) == "none"
    worse = {"none": {"mae": 1.05}, "histgradientboosting": {"rare_crps": 1.03}, "lightgbm": {"mae": 1.019}}
    assert bases.chosen(study, [line(study, **worse)]) == "LightGBM"
    assert bases.score(study, [line(study, **worse)], "none") == pytest.approx(1.05**0.5)
    worse["lightgbm"] = {"mae": 1.03}
    assert bases.chosen(study, [line(study, **worse)]) == "CatBoost"


def test_ratios_are_averaged_over_seeds_and_missing_coverages_left_out() -> None:
    study = bases.STUDY
    lines = [line(study, none={"mae": 1.2}), line(study, seed=1, none={"mae": 1.0, "few": None})]  # type: ignore[dict-item]
    mean, spread = study.ratio(lines, "none", "mae")
    assert mean == pytest.approx(1.1) and spread == pytest.approx(0.2 / 2**0.5)
    row = study.table(lines, "made").rows[-1]
    assert row[:2] == ["none", "1.100 ± 0.141"] and row[-2:] == ["1.000", "1"]
