"""Fitted models through the commands: figures, and mistakes refused."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnxruntime
import pandas as pd
import pytest

from tailwise import TailRegressor
from tests.cli.conftest import FAST, Installed, Run, Sample

# -- predict -------------------------------------------------------------------------------------


def test_predictions_beside_kept_columns(run: Run, place: Path, tmp_path: Path) -> None:
    line = ["predict", place / "m.tailwise", "-"]
    out = run(*line, "-o", "-", "--keep", "kind", "--rare", 0.8, stdin=(place / "new.csv").read_bytes())
    assert out.exit_code == 0, out.output
    assert TailRegressor.load(place / "m.tailwise").explain_intervals(rare=0.8) in out.stderr
    (tmp_path / "p.csv").write_text(out.stdout)
    table = pd.read_csv(tmp_path / "p.csv")
    assert list(table.columns)[:5] == ["kind", "prediction", "std", "lower", "upper"]
    assert len(table) == 150 and bool((table["lower"] <= table["upper"]).all())
    clash = pd.read_csv(place / "new.csv").assign(std=1)
    clash.to_csv(tmp_path / "clash.csv", index=False)
    line = ["predict", place / "m.tailwise", tmp_path / "clash.csv", "-o", tmp_path / "q.csv"]
    out = run(*line, "--keep", "std")
    assert out.exit_code == 1 and "'std' of --keep has the name of a prediction" in out.stderr


def test_values_that_training_never_had_are_noted_once(
    run: Run, sample: Sample, place: Path, pair: Path, tmp_path: Path
) -> None:
    new, out = tmp_path / "new.csv", tmp_path / "p.csv"
    sample(40).assign(x=None, kind="green", rent=1.0).to_csv(new, index=False)
    for command in (["evaluate", pair / "m", new], ["predict", place / "m.tailwise", new, "-o", out]):
        done = run(*command)
        assert done.exit_code == 0, done.output
        assert done.stderr.count("note: column 'x'") == 1 and "40 of 40 rows" in done.stderr
        assert done.stderr.count("note: column 'kind'") == 1 and "'green'" in done.stderr
    done = run("predict", place / "m.tailwise", place / "new.csv", "-o", out, "--force")
    assert done.exit_code == 0 and "note:" not in done.stderr


# -- evaluate ------------------------------------------------------------------------------------


def test_evaluate_prints_figures_and_writes_a_page(run: Run, place: Path, tmp_path: Path) -> None:
    out = run("evaluate", place / "m.tailwise", place / "new.csv", "--report", tmp_path / "e.html")
    assert out.exit_code == 0, out.output
    assert "90% intervals" in out.stdout and " CatBoost " in out.stdout and " constant " in out.stdout
    assert "the error for the rarest 15% of the labels is" in out.stdout
    assert f"wrote {tmp_path / 'e.html'}" in out.stderr
    page = (tmp_path / "e.html").read_text(encoding="utf-8")
    assert "price: TailRegressor on new.csv" in page and "measured on 150 rows of new.csv. They hold" in page
    out = run("evaluate", place / "m.tailwise", place / "new.csv", "--json")
    printed = json.loads(out.stdout)
    assert printed["target"] == "price" and printed["regions"]["all"]["n"] == 150
    assert {"interval_score", "crps"} <= set(printed["base"]["all"])


def test_two_models_are_compared_by_the_regions_of_the_first(
    run: Run, sample: Sample, place: Path, tmp_path: Path
) -> None:
    sample(60, seed=4).to_csv(tmp_path / "few.csv", index=False)
    out = run("fit", tmp_path / "few.csv", "-t", "price", "-o", tmp_path / "m", *FAST)
    assert out.exit_code == 0, out.output
    line = ["evaluate", place / "n.tailwise", place / "new.csv", "--against", tmp_path / "m"]
    printed = json.loads(run(*line, "--json").stdout)
    rows = {k: [printed[k][r]["n"] for r in ("many", "medium", "few")] for k in ("regions", "baseline")}
    assert rows["baseline"] == rows["regions"]
    assert "TailRegressor (m)" in run(*line).stdout


def test_no_other_column_is_taken_for_the_target(
    run: Run, sample: Sample, place: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new.csv"
    sample(40, text=True).rename(columns={"price": "cost"}).to_csv(new, index=False)
    out = run("evaluate", place / "n.tailwise", new, "-t", "cost", "--json")
    assert out.exit_code == 0 and json.loads(out.stdout)["target"] == "cost"


# -- the dial ------------------------------------------------------------------------------------


def test_intervals_are_not_explained_for_a_table_that_is_not_there(
    run: Run, place: Path, tmp_path: Path
) -> None:
    out = run("predict", place / "m.tailwise", tmp_path / "gone.csv", "-o", tmp_path / "p.csv", "--rare", 0.8)
    assert out.exit_code == 1 and out.stderr.startswith("error: "), out.stderr


def test_emphasis_moves_predictions_towards_rare_labels(run: Run, place: Path, tmp_path: Path) -> None:
    line = ["predict", place / "n.tailwise", place / "new.csv", "--json"]
    means = {}
    for emphasis in ("auto", "0", "1"):
        out = run(*line, "-o", tmp_path / f"{emphasis}.csv", "--emphasis", emphasis)
        assert out.exit_code == 0, out.output
        means[json.loads(out.stdout)["emphasis"]] = pd.read_csv(tmp_path / f"{emphasis}.csv")[
            "prediction"
        ].mean()
    model, new = TailRegressor.load(place / "n.tailwise"), pd.read_csv(place / "new.csv")
    assert set(means) == {model.emphasis_, 0.0, 1.0}
    assert means[1.0] > means[0.0]  # high prices are rare
    assert means[1.0] == pytest.approx(model.predict(new[["x", "z"]], emphasis=1.0).mean())


def test_evaluate_measures_at_an_emphasis(run: Run, place: Path, tmp_path: Path, pages: list[Any]) -> None:
    line = ["evaluate", place / "n.tailwise", place / "new.csv", "--json"]
    low, high = (
        json.loads(run(*line, "--emphasis", emphasis, *extra).stdout)
        for emphasis, extra in (("0.2", ["--report", tmp_path / "e.html"]), ("0.9", []))
    )
    assert (low["emphasis"], high["emphasis"]) == (0.2, 0.9)
    assert high["regions"]["all"]["bias"] > low["regions"]["all"]["bias"]
    new = pd.read_csv(place / "new.csv")
    model = TailRegressor.load(place / "n.tailwise")
    lower, upper = model.predict_interval(new[["x", "z"]], emphasis=0.2).T
    assert low["regions"]["all"]["coverage"] == ((new["price"] >= lower) & (new["price"] <= upper)).mean()
    assert pages[0].dial["emphasis"] == 0.2


def test_a_label_prior_is_a_column_of_labels(run: Run, place: Path, pair: Path, tmp_path: Path) -> None:
    pd.DataFrame({"any": [5.0, 6.0, 7.0, None]}).to_csv(tmp_path / "sample.csv", index=False)
    pd.DataFrame({"x": 0, "price": [5.0, 6.0, 7.0]}).to_csv(tmp_path / "rows.csv", index=False)
    line = ["predict", place / "n.tailwise", place / "new.csv", "--force"]
    found = {}
    for name in ("sample", "rows"):
        out = run(*line, "-o", tmp_path / "p.csv", "--label-prior", tmp_path / f"{name}.csv", "--json")
        assert out.exit_code == 0, out.output
        assert json.loads(out.stdout)["emphasis"] is None
        found[name] = pd.read_csv(tmp_path / "p.csv")["prediction"]
    pd.testing.assert_series_equal(found["sample"], found["rows"])
    model = TailRegressor.load(place / "n.tailwise")
    new = pd.read_csv(place / "new.csv")[["x", "z"]]
    assert (found["sample"].to_numpy() > model.predict(new, emphasis=0.0)).mean() > 0.9  # towards 5 to 7
    both = run("evaluate", pair / "m", pair / "both.csv", "--label-prior", pair / "both.csv", "--json")
    assert both.exit_code == 0, both.output


# -- several targets -----------------------------------------------------------------------------


def test_predictions_of_several_targets_are_named_after_them(run: Run, pair: Path, tmp_path: Path) -> None:
    out = run("predict", pair / "m", pair / "both.csv", "-o", tmp_path / "p.csv", "--json")
    assert out.exit_code == 0, out.output
    assert set(json.loads(out.stdout)) == {"rows", "out", "emphasis", "region_rent", "region_price"}
    table = pd.read_csv(tmp_path / "p.csv")
    truth = pd.read_csv(pair / "both.csv")
    assert list(table.columns[:4]) == ["prediction_rent", "std_rent", "lower_rent", "upper_rent"]
    assert len(table.columns) == 14
    for target in ("rent", "price"):  # each is on its own scale, so they are not mixed up
        assert abs(table[f"prediction_{target}"].mean() / truth[target].mean() - 1) < 0.5


def test_several_targets_are_evaluated_one_by_one(
    run: Run, pair: Path, tmp_path: Path, pages: list[Any]
) -> None:
    both = run("evaluate", pair / "m", pair / "both.csv", "--json")
    assert both.exit_code == 0, both.output
    printed = {finding["target"]: finding for finding in json.loads(both.stdout)["targets"]}
    assert list(printed) == ["rent", "price"]
    assert printed["rent"]["regions"]["all"]["mae"] > 3 * printed["price"]["regions"]["all"]["mae"]
    line = ["evaluate", pair / "m", pair / "both.csv", "-t", "price", "--report", tmp_path / "price.html"]
    out = run(*line, "--json")
    assert out.exit_code == 0, out.output
    assert json.loads(out.stdout)["regions"] == printed["price"]["regions"]
    assert pages[0].target == "price" and not pages[0].trained_here
    renamed = pd.read_csv(pair / "both.csv").rename(columns={"rent": "a", "price": "b"})
    renamed.to_csv(tmp_path / "renamed.csv", index=False)
    out = run("evaluate", pair / "m", tmp_path / "renamed.csv", "-t", "a", "-t", "b", "--json")
    found = json.loads(out.stdout)["targets"]
    assert [finding["regions"] for finding in found] == [f["regions"] for f in printed.values()]


# -- export --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_export_of_raw_columns(run: Run, place: Path, tmp_path: Path) -> None:
    line = ["export", place / "m.tailwise", "-o", tmp_path / "raw.onnx", "--raw-columns", "--emphasis", 0]
    out = run(*line)
    assert out.exit_code == 0, out.stderr
    session = onnxruntime.InferenceSession(tmp_path / "raw.onnx")
    assert {value.name for value in session.get_inputs()} == {"x", "z", "kind"}


@pytest.mark.slow
def test_export_takes_the_own_emphasis_or_another(run: Run, place: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.tailwise"
    line = ["fit", place / "numbers.csv", "-t", "price", "-o", model, *FAST]
    out = run(*line, "--report", tmp_path / "m.html", "--no-baseline")
    assert out.exit_code == 0, out.output
    for arguments in (["-o", tmp_path / "own.onnx"], ["--emphasis", "1"]):
        out = run("export", model, *arguments)
        assert out.exit_code == 0, out.stderr
    fitted = TailRegressor.load(model)
    new = pd.read_csv(place / "new.csv")[["x", "z"]]
    for name, emphasis in (("own", None), ("m", 1.0)):
        session = onnxruntime.InferenceSession(tmp_path / f"{name}.onnx")
        outputs = [output.name for output in session.get_outputs()]
        assert outputs == ["prediction", "std", "quantiles", "lower", "upper"]
        (mean,) = session.run(["prediction"], {"x": new.to_numpy()})
        assert mean == pytest.approx(fitted.predict(new, emphasis=emphasis), rel=1e-4)


# -- explain ---------------------------------------------------------------------------------------


def test_reasons_of_rows_sum_to_their_predictions(run: Run, place: Path, tmp_path: Path) -> None:
    model, table, out = place / "m.tailwise", place / "new.csv", tmp_path / "reasons.csv"
    told = ("--row", 7, "--row", 2, "--background-rows", 5)
    done = run("explain", model, table, "-o", out, *told, "--json")
    assert done.exit_code == 0, done.output
    found = pd.read_csv(out)
    shown = json.loads(done.stdout)
    assert shown["rows"] == 2 and shown["of"] == "prediction"
    columns = list(TailRegressor.load(model).feature_names_in_)
    rows = pd.read_csv(table)
    for row, lines in found.groupby("row"):
        predicted = TailRegressor.load(model).predict(rows[columns].iloc[[row]])
        assert lines["prediction"].iloc[0] == pytest.approx(predicted[0])
        assert lines["attribution"].sum() + shown["base"] == pytest.approx(predicted[0])
        assert sorted(lines["column"]) == sorted(columns)
        assert (lines["attribution"].abs().diff().dropna() <= 0).all()
    assert list(found["row"].unique()) == [7, 2]
    rows.loc[0, "z"] = None
    rows.to_csv(tmp_path / "missing.csv", index=False)
    told = ("--row", 0, "--of", "width", "--background", place / "houses.csv", "--background-rows", 3)
    done = run("explain", model, tmp_path / "missing.csv", "-o", out, *told, "--force")
    assert done.exit_code == 0 and "wrote the reasons of 1 row to" in done.stderr
    reasons = pd.read_csv(out).set_index("column")
    assert pd.isna(reasons["cell"]["z"]) and reasons["cell"]["kind"] in ("red", "blue") and "width" in reasons


# -- recalibrate -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 sales of 30 shops, one a day."""
    rng = np.random.default_rng(0)
    size = rng.gamma(2.0, size=300)
    table = pd.DataFrame(
        {"size": size, "shop": np.arange(300) % 30, "price": 3 * size + rng.normal(size=300)}
    )
    table["day"] = pd.date_range("2024-01-01", periods=300).strftime("%Y-%m-%d")
    path = tmp_path_factory.mktemp("sales") / "sales.csv"
    table.to_csv(path, index=False)
    return path


def done(out: Any) -> Any:
    assert out.exit_code == 0, out.stderr
    return out


def test_recalibrate_and_coverage_by(run: Run, sales: Path, tmp_path: Path) -> None:
    model, again = tmp_path / "m", tmp_path / "n"
    told = ("-t", "price", "-o", model, "--groups", "shop", *FAST)
    done(run("fit", sales, *told))
    assert "shop" not in TailRegressor.load(model).feature_names_in_
    key = tmp_path / "key"
    key.write_text("a secret of at least sixteen bytes")
    found = done(run("recalibrate", model, sales, "-o", again, "--json", "--sign", key))
    done(run("recalibrate", again, sales, "-o", tmp_path / "o", "--verify", key, "--encoding", "utf-8"))
    assert json.loads(found.stdout) == {"model": str(again), "rows": 300}
    assert TailRegressor.load(again).model_.record.recalibrated == 300
    out = done(run("evaluate", again, sales, "--by", "shop"))
    assert "its 95% interval" in out.stdout and "24 to 29" in out.stdout
    shown = json.loads(done(run("evaluate", again, sales, "--by", "shop", "--json")).stdout)["by"]
    assert [row["rows"] for row in shown][-1] == 300 and shown[0]["target"] == "price"


def test_the_latest_rows_test_and_a_model_goes_on(run: Run, sales: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "m", tmp_path / "n"
    told = ("-t", "price", "--time", "day", "--drop", "day", *FAST)
    out = json.loads(done(run("fit", sales, *told, "-o", first, "--json")).stdout)
    assert out["regions"]["all"]["n"] == 60
    model = TailRegressor.load(first)
    latest = pd.read_csv(sales)["price"].to_numpy()
    held = model.calibrators_[0].held
    assert held is not None and set(held.labels) <= set(latest[192:240])
    done(run("fit", sales, *told, "-o", second, "--start-from", first))
    np.testing.assert_array_equal(TailRegressor.load(second).bins_.edges, model.bins_.edges)


# -- cards and servers -----------------------------------------------------------------------------


def test_a_card_with_a_test(run: Run, place: Path, tmp_path: Path) -> None:
    printed = run("evaluate", place / "m.tailwise", place / "new.csv", "--json")
    (tmp_path / "test.json").write_text(printed.stdout, encoding="utf-8")
    out = run("card", place / "m.tailwise", "-o", tmp_path / "card.md", "--report", tmp_path / "test.json")
    assert out.exit_code == 0, out.output
    card = (tmp_path / "card.md").read_text(encoding="utf-8")
    figures = json.loads(printed.stdout)
    assert figures["verdict"]["headline"] in card and "| this model | all | 150 |" in card
    assert "| base | CatBoostRegressor |" in card
    again = run("card", place / "n.tailwise", "-o", tmp_path / "card.md")
    assert again.exit_code == 1 and "already exists" in again.stderr


def test_serve_stops_with_code_0(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import uvicorn

    def stopped(server: uvicorn.Server, sockets: list[Any]) -> None:
        assert sockets[0].getsockname()[1] > 0
        raise KeyboardInterrupt

    monkeypatch.setattr(uvicorn.Server, "run", stopped)
    out = run("serve", place / "n.tailwise", "--port", 0, "--max-waiting", 3)
    assert out.exit_code == 0 and re.search(r"serving .*n.tailwise on http://127.0.0.1:\d+", out.stderr)
    assert "stopped after 0 answers" in out.stderr


@pytest.mark.slow
def test_a_server_answers_and_stops_on_sigterm(program: Installed, place: Path) -> None:
    process = program.start("serve", place / "n.tailwise", "--port", 0)
    try:
        line = process.stderr.readline()
        address = re.search(r"http://127.0.0.1:\d+", line)
        assert address is not None, line
        rows = pd.read_csv(place / "new.csv").drop(columns="price")[:3].to_dict(orient="records")
        answer = httpx.post(f"{address[0]}/predict", json={"rows": rows}, timeout=60)
        assert answer.status_code == 200 and len(answer.json()["predictions"]) == 3
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert process.returncode == 0 and "stopped after 1 answers" in said and "Traceback" not in said
