"""The runner: what it runs, in which order, and what it refuses."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from research.tests.conftest import Offset
from tailwise.report.results import read_records, read_results
from tailwise_bench.choose import choose_contenders
from tailwise_bench.contenders import Contender
from tailwise_bench.estimators import Estimator, Prediction
from tailwise_bench.runs import Summary, run_suite, take_times
from tailwise_bench.spaces import Range
from tailwise_bench.suites import Suite, get_suite
from tailwise_bench.tables import TEST_SHARE


def ran(suite: Suite, contenders: list[Contender], folder: Path, **options: Any) -> Summary:
    return run_suite(suite, contenders, folder / "r.jsonl", **options)


def test_the_first_seed_is_tuned_and_the_others_take_its_options(
    suite: Suite, offset: Offset, tmp_path: Path
) -> None:
    summary = ran(suite, [offset.contender(offset=Range(0.1, 0.5, default=0.5))], tmp_path)
    assert (summary.done, summary.left, summary.failed) == (4, 0, [])
    lines = {(r["data"], r["seed"]): r for r in read_results(tmp_path / "r.jsonl")}
    assert [len(lines["one", seed].get("trials", [])) for seed in (0, 1)] == [2, 0]
    options = lines["two", 0]["options"]
    assert options["offset"] < 0.5 and lines["two", 1]["options"] == options
    assert [call[2] for call in offset.calls if call[:2] == ("two", 1)] == [options]


def test_finished_runs_are_not_repeated_and_failed_ones_are(
    untuned: Suite, offset: Offset, tmp_path: Path
) -> None:
    offset.fails = lambda problem, options: problem.name == "two"
    summary = ran(untuned, [offset.contender()], tmp_path)
    assert summary.done == 2 and len(summary.failed) == 2 and "RuntimeError: it broke" in summary.failed[0]
    assert "traceback" in next(r for r in read_records(tmp_path / "r.jsonl") if "error" in r)
    offset.fails, offset.calls = lambda problem, options: False, []
    assert ran(untuned, [offset.contender()], tmp_path).done == 2
    assert {name for name, _, _ in offset.calls} == {"two"}
    offset.calls = []
    assert ran(untuned, [offset.contender()], tmp_path) == Summary() and offset.calls == []


def test_runs_start_before_the_time_limit_only(untuned: Suite, offset: Offset, tmp_path: Path) -> None:
    summary = ran(untuned, [offset.contender()], tmp_path, time_limit=0)
    assert (summary.done, summary.left) == (0, 4) and offset.calls == []


def test_runs_that_do_not_compare_need_another_file(untuned: Suite, offset: Offset, tmp_path: Path) -> None:
    ran(untuned, [offset.contender()], tmp_path)
    with pytest.raises(ValueError, match="has runs with epochs = 2, not 3: name another file"):
        ran(replace(untuned, recipe=untuned.recipe.within(epochs=3)), [offset.contender()], tmp_path)
    with pytest.raises(ValueError, match="has runs with suite = test, not other"):
        ran(replace(untuned, label="other"), [offset.contender()], tmp_path)
    with pytest.raises(ValueError, match="options of offset"):
        ran(untuned, [replace(offset.contender(), fixed={"offset": 1})], tmp_path)
    lines = [json.loads(line) | {"digest": "x"} for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines[:1]))
    with pytest.raises(ValueError, match="was made with other rows of one, seed 0"):
        ran(untuned, [offset.contender(), offset.contender("more")], tmp_path)
    with pytest.raises(ValueError, match="has no data set 'three'; it has one, two"):
        ran(untuned, [offset.contender()], tmp_path, data=["three"])


@pytest.mark.slow
def test_methods_run_in_processes_with_equal_results(untuned: Suite, tmp_path: Path) -> None:
    contenders = choose_contenders(["vir[weights.power=0.25]", "vir[dial]"])
    one, two = ({}, {"workers": 2})
    kept = []
    for number, options in enumerate((one, two)):
        folder = tmp_path / str(number)
        assert ran(untuned, contenders, folder, data=["one"], seeds=[0], **options).done == 2
        lines = {r["method"]: r["metrics"] for r in read_results(folder / "r.jsonl")}
        kept.append(lines)
    assert set(kept[0]) == {"vir[weights.power=0.25]", "vir", "vir[dial]", "vir[dial for few shots]"}
    assert kept[0] == kept[1]


def test_times_are_those_of_the_chosen_options(untuned: Suite, offset: Offset, tmp_path: Path) -> None:
    contenders = [offset.contender()]
    ran(untuned, contenders, tmp_path)
    offset.calls = []
    assert take_times(untuned, contenders, tmp_path / "r.jsonl", tmp_path / "t.jsonl").done == 2
    assert [name for name, seed, _ in offset.calls] == ["one", "one", "two"]  # the first is fitted twice
    assert take_times(untuned, contenders, tmp_path / "r.jsonl", tmp_path / "t.jsonl") == Summary()


def test_estimators_run_on_natural_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailwise_bench.measure.fit_gaussian", lambda *_, **__: None)

    def fit(x: Any, y: Any, seed: int) -> Any:
        def predict(x: Any) -> Prediction:
            mean = y.mean() + 0 * x.iloc[:, 1].to_numpy(float)
            return Prediction(mean, mean - 5, mean + 5, quantiles=mean[:, None])

        return predict

    suite = replace(get_suite("quick-estimator"), seeds=1)
    estimator = Estimator("constant", "Constant", fit)
    out = tmp_path / "r.jsonl"
    assert run_suite(suite, [estimator], out, data=["abalone"]).done == 1
    (line,) = read_results(out)
    assert line["rows"]["test"] == round(TEST_SHARE * 4177) and line["rows"]["train"] == suite.max_rows
    assert line["metrics"]["raw"]["rare"]["mae"] > line["metrics"]["raw"]["all"]["mae"]
    assert set(line["metrics"]["raw"]["all"]) == {
        *("mae", "rmse", "crps", "coverage", "width", "interval_score")
    }
