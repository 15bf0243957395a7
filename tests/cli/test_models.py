"""`tailwise predict`, `evaluate` and `export`, and what becomes of outputs: figures, and mistakes refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import pandas as pd
import pytest

import tailwise.report.page
from tailwise import TailRegressor

Run = Callable[..., Any]
Sample = Callable[..., pd.DataFrame]
FAST = ["--epochs", "1", "--folds", "1", "--base", "none", "--quiet"]


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
    out = run("evaluate", place / "n.tailwise", new)
    assert out.exit_code == 1 and out.stdout == ""
    assert f"{new} has no column 'price', the model's target" in out.stderr
    assert out.stderr.endswith("name the column of true labels\n")
    out = run("evaluate", place / "n.tailwise", new, "-t", "cost", "--json")
    assert out.exit_code == 0 and json.loads(out.stdout)["target"] == "cost"


# -- the dial ------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("price\n1000\n2000\n", "prior.csv: the label prior has no mass between"),
        ("price\nhigh\n2\n", "prior.csv: the column 'price' must be numbers, but line 2 holds 'high'"),
        ("cost,x\n1,2\n", "prior.csv has no column 'price'"),
        ("price,x\n,2\n", "prior.csv: the column 'price' is empty"),
    ],
)
def test_a_bad_label_prior_is_refused_before_predicting(
    run: Run, place: Path, tmp_path: Path, table: str, words: str
) -> None:
    (tmp_path / "prior.csv").write_text(table)
    out = run("predict", place / "n.tailwise", tmp_path / "no.csv", "-o", tmp_path / "p.csv", "--label-prior",
              tmp_path / "prior.csv")  # fmt: skip
    assert out.exit_code == 1 and words in out.stderr, out.stderr


def test_a_dial_that_cannot_be_meant(run: Run, place: Path, pair: Path, tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text("lower,upper,count\n0,9,1\n")
    prior = ["--label-prior", tmp_path / "h.csv"]
    predict = ["predict", place / "n.tailwise", place / "new.csv", "-o", tmp_path / "p.csv"]
    for line, words in (
        ([*predict, "--emphasis", "2"], "--emphasis takes a number from 0 to 1, or auto, not '2'"),
        ([*predict, "--emphasis", "lots"], "not 'lots'"),
        ([*predict, "--emphasis", "1", *prior], "give --emphasis or --label-prior, not both"),
        (["evaluate", place / "n.tailwise", "-", "--label-prior", "-"], "only one of FILE and --label-prior"),
        (["evaluate", pair / "m", pair / "both.csv", *prior], "h.csv has no column 'rent'"),
        (["fit", place / "new.csv", "-t", "price", "-o", tmp_path / "m", "--emphasis", "-1"], "not '-1'"),
    ):
        out = run(*line)
        assert out.exit_code == 1 and words in out.stderr, out.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["h.csv"]


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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "both.csv", "-t", "rent", "-t", "price", "-o", "n", "--report", "r"], "tailwise evaluate n"),
        (["fit", "both.csv", "-t", "rent", "-t", "rent", "-o", "n"], "'rent' is named as a target twice"),
        (["evaluate", "m", "both.csv", "--report", "r.html"], "choose it with --target"),
        (["evaluate", "m", "both.csv", "-t", "x"], "the model's targets are rent, price"),
        (["compare", "both.csv", "-t", "rent", "-t", "price"], "takes one --target"),
    ],
)
def test_where_several_targets_are_too_many(
    run: Run, pair: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(pair)
    out = run(*arguments)
    assert out.exit_code == 1 and words in out.stderr, out.output
    assert sorted(p.name for p in pair.iterdir()) == ["both.csv", "m"]


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


# -- outputs -------------------------------------------------------------------------------------


def test_nothing_is_overwritten_without_force(run: Run, place: Path, tmp_path: Path) -> None:
    for name in ("m", "r.html", "p.csv"):
        (tmp_path / name).write_text("mine")
    fit = ["fit", place / "numbers.csv", "-t", "price", *FAST]
    for arguments in (
        [*fit, "-o", tmp_path / "m"],
        [*fit, "-o", tmp_path / "m2", "--report", tmp_path / "r.html"],
        ["predict", place / "n.tailwise", place / "new.csv", "-o", tmp_path / "p.csv"],
    ):
        out = run(*arguments)
        assert out.exit_code == 1 and "--force" in out.stderr
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == dict.fromkeys(
        ("m", "r.html", "p.csv"), "mine"
    )
    out = run("predict", place / "n.tailwise", place / "new.csv", "-o", tmp_path / "p.csv", "--force")
    assert out.exit_code == 0 and (tmp_path / "p.csv").read_text() != "mine"
    copy = shutil.copy(place / "new.csv", tmp_path / "in.csv")
    out = run("predict", place / "n.tailwise", copy, "-o", copy, "--force")
    assert out.exit_code == 1 and "also an input" in out.stderr
    assert Path(copy).read_bytes() == (place / "new.csv").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "houses.csv", "-t", "price", "-o", "-"], "only predictions can be written to -"),
        (["evaluate", "n.tailwise", "new.csv", "--report", "-"], "only predictions can be written to -"),
        (["evaluate", "n.tailwise", "new.csv", "-t", "price", "-t", "price"], "as a target twice"),
        (["predict", "n.tailwise", "new.csv", "-o", "-", "--json"], "both use standard output"),
        (["fit", "houses.csv", "-t", "price", "-o", "n", "--report", "n"], "--report name the same file"),
        (["fit", "houses.csv", "-t", "price", "-o", "."], ". is a folder: name a file in it"),
        (["fit", "houses.csv", "-t", "price", "-o", "new.csv/m"], "cannot write new.csv/m: no file can be"),
        (["predict", "n.tailwise", "new.csv", "-o", "t.xlsx"], "use .csv"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(place)
    out = run(*arguments)
    assert out.exit_code == 1 and words in out.stderr and out.stdout == ""
    assert not (place / "-").exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc here")
@pytest.mark.parametrize("path", ["/proc/m", "/proc/folder/m"])
def test_a_folder_that_takes_no_files_is_refused_before_any_training(
    run: Run, place: Path, path: str
) -> None:
    for where in (["-o", path], ["-o", place / "never", "--report", path]):
        out = run("fit", place / "houses.csv", "-t", "price", "--epochs", "1", *where)
        assert out.exit_code == 1 and len(out.stderr.splitlines()) == 1, out.output
        assert out.stderr.startswith(f"error: cannot write {path}: no file can be created in /proc (")
    assert not (place / "never").exists()


def test_a_full_disk_is_an_error_and_leaves_no_part(
    run: Run, place: Path, sample: Sample, small_disk: Path
) -> None:
    kept = small_disk / "kept.csv"
    kept.write_text("mine")
    long = small_disk.parent / "long.csv"
    pd.concat([sample(400, text=True)] * 10).to_csv(long, index=False)
    for file, arguments in (
        ("m.checkpoint", ["fit", place / "houses.csv", "-t", "price", "-o", small_disk / "m", *FAST]),
        ("kept.csv", ["predict", place / "m.tailwise", long, "-o", kept, "--force"]),
    ):
        out = run(*arguments)
        assert out.exit_code == 1
        assert f"cannot use {small_disk / file}: No space left" in out.stderr
        assert [p.name for p in small_disk.iterdir()] == ["kept.csv"]
    assert kept.read_text() == "mine"


def test_a_model_and_its_page_are_written_both_or_not_at_all(
    run: Run, place: Path, small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailwise.report.page, "model_page", lambda *_: "x" * 100_000)
    model, page = tmp_path / "m", small_disk / "r.html"  # the page does not fit
    line = ["fit", place / "numbers.csv", "-t", "price", "-o", model, "--no-baseline", *FAST[:-1]]
    out = run(*line, "--report", page)
    assert out.exit_code == 1 and "No space left" in out.stderr
    assert out.stderr.endswith(f"; the same command resumes from {model}.checkpoint\n")
    assert list(small_disk.iterdir()) == [] and not model.exists()
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["m.checkpoint"]
    out = run(*line, "--report", tmp_path / "r.html")
    assert out.exit_code == 0 and "resuming from" in out.stderr and "epoch 1" not in out.stderr
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["m", "r.html"]


# -- hostile names and files ---------------------------------------------------------------------


def test_names_from_data_cannot_control_a_terminal(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\x1b[2Jx,price\n" + "\n".join(f"{i},{i}" for i in range(30)), encoding="utf-8")
    for line in (
        ["diagnose", path, "-t", "nothing"],
        ["fit", path, "-t", "price", "-o", tmp_path / "m", *FAST],
    ):
        out = run(*(word for word in line if word != "--quiet"))
        assert "\x1b" not in out.output and "x1b[2Jx" in out.output


def test_a_target_named_self_and_a_signature(run: Run, sample: Sample, tmp_path: Path) -> None:
    table, key, model = tmp_path / "t.csv", tmp_path / "key", tmp_path / "m"
    sample(60).rename(columns={"price": "self", "z": "=z"}).assign(note="=1+1").to_csv(table, index=False)
    line = ["fit", table, "-t", "self", "-o", model, *FAST, "--drop", "note"]
    assert "cannot use" in run(*line, "--sign", key).stderr and not model.exists()
    key.write_text("short")
    assert "a key needs at least 16" in run(*line, "--sign", key).stderr and not model.exists()
    key.write_text("0123456789abcdef")
    assert run(*line, "--sign", key).exit_code == 0
    out = tmp_path / "p.csv"
    asked = ["predict", model, table, "-o", out, "--force", "--keep", "note,=z"]
    assert run(*asked, "--verify", key).exit_code == 0
    assert out.read_text().splitlines()[1].startswith("=1+1,")
    key.write_text("another secret key")
    refused = run(*asked, "--verify", key)
    assert refused.exit_code == 1 and "was signed with another key" in refused.stderr
