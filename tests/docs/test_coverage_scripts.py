"""The studies of intervals (benchmarks/coverage.py, benchmarks/coverage_simulation.py): figures and pages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks import coverage, coverage_simulation

ROOT = Path(__file__).parents[2]


# -- simulation ------------------------------------------------------------------------------------


def test_intervals_hold_where_the_truth_is_known() -> None:
    results = coverage_simulation.simulate((300,), draws=12)
    sums = results.groupby(["method", "part"])[["hits", "rows"]].sum()
    covered = sums["hits"] / sums["rows"]
    ours, plain = covered["TailRegressor's rule"], covered["split conformal"]
    assert 0.9 < ours["all"] < 0.96
    assert 0.85 < ours["rarest"] < 0.95 and ours["rarest"] > plain["rarest"] + 0.04
    assert 0.85 < ours["few"] < 0.95
    width = results.groupby(["method", "part"])["width"].mean()
    assert width["TailRegressor's rule"]["all"] < width["constant"]["all"]
    table = coverage_simulation.table_of(results)
    assert "| 300 | all | TailRegressor's rule | " in table


def test_the_same_seed_gives_the_same_draw() -> None:
    assert coverage_simulation.one_draw(100, 3, 50) == coverage_simulation.one_draw(100, 3, 50)


def test_figures_of_the_simulation_in_the_docs() -> None:
    page = (ROOT / "docs" / "results" / "coverage_simulation.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\d,]+) \| (\w+) \| TailRegressor's rule \| ([\d.]+) \|", page, re.M)
    found: dict[str, list[float]] = {}
    for _, part, share in rows:
        found.setdefault(part, []).append(round(100 * float(share)))
    assert [n for n, part, _ in rows if part == "all"] == ["100", "300", "1,000", "10,000"]
    said = " ".join((ROOT / "docs" / "estimator.md").read_text(encoding="utf-8").split())
    ends = {part: f"{min(v):.0f}% to {max(v):.0f}%" for part, v in found.items()}
    assert (
        f"90% intervals contain {ends['all']} of all labels, {ends['rarest']} of the 15% rarest and "
        f"{ends['few']} of few-shot labels with 100 to 10,000 rows" in said
    )


# -- tables ----------------------------------------------------------------------------------------


def run(rng: np.random.Generator, error: float, **more: Any) -> dict[str, np.ndarray]:
    """Predictions of a skewed label with a given error, for 400 held-out and 300 test rows."""
    truth, y_train = np.random.default_rng(0), np.random.default_rng(1).exponential(size=2000)
    held_y, y = truth.exponential(size=400), truth.exponential(size=300)
    found = {
        "held_y": held_y, "held_mean": held_y + error * rng.normal(size=400),
        "held_spread": np.full(400, error), "mean": y + error * rng.normal(size=300),
        "spread": np.full(300, error), "y": y, "y_train": y_train,
        "rare": (y > np.quantile(y, 0.85)).astype(float), "about": np.array(json.dumps({"seconds": 1.0})),
    }  # fmt: skip
    return found | more


@pytest.fixture
def found() -> dict[str, dict[str, np.ndarray]]:
    rng = np.random.default_rng(2)
    tail, folds = run(rng, 0.3), run(rng, 0.4)
    own = {"lower": tail["mean"] - 0.6, "upper": tail["mean"] + 0.9}
    around = {"lower": folds["mean"] - 1, "upper": folds["mean"] + 1}
    return {
        "TailRegressor": tail | own, "CatBoost": run(rng, 0.4), "NGBoost": run(rng, 0.5),
        "CatBoost folds": folds | around,
    }  # fmt: skip


def test_scores_and_page_of_one_table(found: dict[str, dict[str, np.ndarray]]) -> None:
    lines = [line for seed in (0, 1) for line in coverage.scores_of(found, "made", seed)]
    by = {line["method"]: line for line in lines}
    assert list(by)[:3] == ["TailRegressor", "TailRegressor + crepes", "CatBoost + crepes"] and len(by) == 9
    tail, y = found["TailRegressor"], found["TailRegressor"]["y"]
    inside = (y >= tail["lower"]) & (y <= tail["upper"])
    assert by["TailRegressor"]["all/coverage"] == round(inside.mean(), 5)
    # Spreads are equal here, so crepes' normalised scores and MAPIE's absolute ones are the same.
    for part in ("coverage", "width"):
        assert by["CatBoost + crepes"][f"all/{part}"] == pytest.approx(
            by["CatBoost + MAPIE"][f"all/{part}"], abs=0.01
        )
    assert by["CatBoost + crepes, stretched"]["few/coverage"] >= by["TailRegressor"]["few/coverage"]
    assert by["CatBoost + crepes"]["all/coverage"] == pytest.approx(0.9, abs=0.04)
    text = coverage.page(lines)
    assert "over 2 seeds, on 1 of the seven tables" in text and "| made | CatBoost, our rule | " in text
    assert "TailRegressor divided by CatBoost + crepes, stretched" in text
    assert coverage.findings(pd.DataFrame(lines))[-1].endswith("over seeds: made 0.00.")


def test_what_is_done_is_not_done_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--data", "abalone", "--seeds", "1", "--models", "CatBoost", "--folder", str(tmp_path)]
    assert coverage.main(["write", *arguments]) == 1
    assert "run `fit` first" in capsys.readouterr().err
    (tmp_path / "abalone-0-CatBoost.npz").touch()
    assert coverage.main(["fit", *arguments]) == 0
    assert "0 of 1 runs to do" in capsys.readouterr().out
