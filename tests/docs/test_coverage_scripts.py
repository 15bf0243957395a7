"""The studies of intervals in benchmarks/: coverage, coverage_simulation, rare_coverage, default_bounds."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks import coverage, coverage_simulation, default_bounds, rare_coverage
from tailwise.core.distributions import Normal
from tailwise.core.label_prior import LabelDensity, rarest
from tailwise.core.labels import LabelBins
from tailwise.core.truncation import Bounds
from tailwise.estimator.regressor import TailRegressor
from tailwise.uncertainty.calibrator import Raw, fit_calibrator
from tailwise.uncertainty.conformal import FEW_SLACK

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


def test_no_interval_leaves_the_bounds() -> None:
    results = coverage_simulation.simulate((100,), draws=2, floor=True)
    sums = results[results["part"] == "all"].groupby("method")[["hits", "rows", "outside"]].sum()
    assert sums.loc["TailRegressor's rule", "outside"] == 0 < 1000 < sums.loc["split conformal", "outside"]
    assert 0.9 < sums.loc["TailRegressor's rule", "hits"] / 2000 < 0.98
    rng = np.random.default_rng(0)
    y, predictions = coverage_simulation.draw(100_000, rng, floor=True)
    mean, variance = coverage_simulation.moments(
        coverage_simulation.LEVEL, coverage_simulation.TOTAL, floor=True
    )
    assert y.mean() == pytest.approx(float(mean), rel=0.02) and (y == 0).mean() == pytest.approx(
        0.3, abs=0.01
    )
    assert y.std() == pytest.approx(float(variance) ** 0.5, rel=0.05) and len(predictions) == 5


def test_the_same_seed_gives_the_same_draw() -> None:
    assert coverage_simulation.one_draw(100, 3, 50) == coverage_simulation.one_draw(100, 3, 50)


def test_figures_of_the_simulation_in_the_docs() -> None:
    page = (ROOT / "docs" / "results" / "coverage_simulation.md").read_text(encoding="utf-8")
    plain, bounded = page.split("## Labels of at least 0")
    assert re.search(r"^0 of 800,000 intervals of TailRegressor's rule leave the bounds\.$", bounded, re.M)
    rows = re.findall(r"^\| ([\d,]+) \| (\w+) \| TailRegressor's rule \| ([\d.]+) \|", plain, re.M)
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


def test_figures_of_the_tables_in_the_docs() -> None:
    lines = (ROOT / "docs" / "results" / "coverage.jsonl").read_text(encoding="utf-8").splitlines()
    results = pd.DataFrame([json.loads(line) for line in lines])
    few = results[results["method"] == "TailRegressor"].groupby("data")["few/coverage"].mean()
    said = " ".join((ROOT / "docs" / "estimator.md").read_text(encoding="utf-8").split())
    assert len(few) == 7
    assert f"On seven tables they contain {few.min():.0%} to {few.max():.0%} of few-shot labels" in said


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
    assert "over seeds (2), on 1 of the seven tables" in text and "| made | CatBoost, our rule | " in text
    assert "TailRegressor divided by CatBoost + crepes, stretched" in text
    assert coverage.findings(pd.DataFrame(lines))[-1].endswith("over seeds: made 0.00.")


def test_what_is_done_is_not_done_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--data", "abalone", "--seeds", "1", "--models", "CatBoost", "--folder", str(tmp_path)]
    assert coverage.main(["write", *arguments]) == 1
    assert "run `fit` first" in capsys.readouterr().err
    (tmp_path / "abalone-0-CatBoost.npz").touch()
    assert coverage.main(["fit", *arguments]) == 0
    assert "0 of 1 runs to do" in capsys.readouterr().out


# -- rules for rare labels -------------------------------------------------------------------------


def made_run(seed: int) -> dict[str, Any]:
    """Labels with a far tail that predictions know nothing of, for 2,000 held-out and 1,000 test rows."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(3000) < 0.03, rng.uniform(20, 60, 3000), 2 * rng.normal(size=3000))
    every = Normal(torch.zeros(3000, dtype=torch.float64), 4.0)
    bins, rows = LabelBins.from_labels(y[:2000]), np.arange(2000)
    calibrator = fit_calibrator(every[:2000], y[:2000], bins, rows, rows)
    rare = rarest(y[2000:], LabelDensity.from_bins(bins))
    return {"found": calibrator.predicted(Raw(every[2000:])), "y": y[2000:], "rare": rare}


def test_the_default_is_the_rule_that_won(tmp_path: Path) -> None:
    run = made_run(0)
    lower, upper = (end.numpy() for end in run["found"].interval(0.9))
    scores = {name: rare_coverage.score(run, name) for name in rare_coverage.VARIANTS}
    won = scores[f"missed {FEW_SLACK:g} times"]
    inside = (run["y"] >= lower) & (run["y"] <= upper)
    assert won["rarest/coverage"] == inside[run["rare"]].mean() and won["few-shot/n"] > 0
    widths = [scores[name]["all/width"] for name in ("rare only", "missed 2 times", "missed 1 times")]
    assert widths[0] <= widths[1] < won["all/width"] < widths[2]
    for seed in (0, 1):
        (tmp_path / f"made-{seed}-2000.pkl").write_bytes(pickle.dumps(made_run(seed)))
    text = rare_coverage.markdown(rare_coverage.score_all(tmp_path))
    assert "| made | 2 | rare only | " in text and "\n| missed 1.5 times | " in text
    page = (ROOT / "docs" / "results" / "rare_coverage.md").read_text(encoding="utf-8")
    assert f"\n`missed {FEW_SLACK:g} times` wins with " in page


def test_a_variant_wins_only_by_the_rule() -> None:
    line = {f"{part}/{what}": 0.9 for part in rare_coverage.PARTS for what in ("coverage", "width")}
    line |= {f"{part}/n": 100 for part in rare_coverage.PARTS} | {"seed": 0, "table": "made"}
    lines = [line | {"variant": name, "all/width": 3.0} for name in rare_coverage.VARIANTS]
    lines[1] |= {"all/width": 1.0, "rarest/coverage": 0.96}
    lines[2] |= {"all/width": 1.5, "few-shot/coverage": 0.84}
    lines[3] |= {"all/width": 2.0}
    lines[4] |= {"all/width": 1.0, "few-shot/coverage": 0.84, "rarest/coverage": 0.84}
    table = rare_coverage.judged(pd.DataFrame(lines))
    assert table["misfits"].tolist() == [0, 1, 1, 0, 2, 0]
    best = list(rare_coverage.VARIANTS)[3]
    assert rare_coverage.finding(table) == (
        f"`{best}` wins with 0 misfits; its intervals are 0.67 times as wide as those of `missed 2 times`."
    )
    # Few-shot labels of a table with too few of them do not count.
    sparse = rare_coverage.judged(pd.DataFrame([one | {"few-shot/n": 19} for one in lines]))
    assert sparse["misfits"].tolist() == [0, 1, 0, 0, 1, 0]


# -- bounds by default -----------------------------------------------------------------------------


def test_rules_for_bounds() -> None:
    y = np.r_[np.zeros(10), np.random.default_rng(0).exponential(size=90)]
    found = {name: rule(y) for name, rule in default_bounds.RULES.items()}
    assert found["none"] is None and found["observed"] == Bounds(0.0, y.max())
    assert found["proposed"] == found["spike"] == Bounds(0.0) and default_bounds.RULES["spike"](y[9:]) is None


def test_bounds_are_no_default_unless_every_condition_is_met(tmp_path: Path) -> None:
    rng, bins = np.random.default_rng(0), LabelBins.from_labels(np.arange(300) % 30)
    y = np.abs(rng.normal(size=300)) * 10
    every, rows = Normal(torch.from_numpy(y + rng.normal(size=300)), 4.0), np.arange(200)
    calibrator = fit_calibrator(every[:200], y[:200], bins, rows, rows)
    run = {"found": calibrator.predicted(Raw(every[200:])), "y": y[200:], "rare": y[200:] > 15}
    (tmp_path / "made-0-1500.pkl").write_bytes(pickle.dumps(run))
    assert default_bounds.score(run, "spike") is None  # no value is frequent
    results = default_bounds.score_all(tmp_path)
    assert results["rule"].tolist() == ["none", "proposed", "observed"]
    one = default_bounds.score(run, "none")
    assert one is not None and one["width"] == results["width"][0]  # the calibrator as it is
    line = dict.fromkeys(default_bounds.METRICS, 1.0) | {"table": "made", "seed": 0}
    lines = [line | {"rule": name, "crps": 0.9} for name in default_bounds.RULES] + [line | {"rule": "none"}]
    lines[0]["crps"] = 1.0
    lines[2] |= {"width": 1.1}
    lines[3] |= {"coverage rarest": 0.97, "mae rarest": 1.1}
    judged = default_bounds.judged(default_bounds.compared(pd.DataFrame(lines)))
    assert judged["conditions that fail"].tolist() == ["-", "2", "3, 4"]
    assert default_bounds.markdown(pd.DataFrame(lines)).startswith("`proposed` becomes the default.")
    page = (ROOT / "docs" / "results" / "default_bounds.md").read_text(encoding="utf-8")
    assert "No rule satisfies all conditions: the default stays None." in page
    assert TailRegressor().bounds is None
