"""What every command does and says, in this process: exit codes, files written, words for what went wrong."""

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import pandas as pd
import pytest

from tailwise import TailRegressor

Run = Callable[..., Any]
Sample = Callable[..., pd.DataFrame]
FAST = ["--epochs", "2", "--quiet"]


# -- commands ------------------------------------------------------------------------------------


def test_fit_writes_a_model_and_a_report_and_nothing_else(place: Path) -> None:
    left = sorted(p.name for p in place.iterdir() if p.name.startswith("m."))
    assert left == ["m.html", "m.tailwise"]
    page = (place / "m.html").read_text(encoding="utf-8")
    assert "Verdict" in page and "Vanilla" in page
    assert len(page) < 2_000_000


def test_predict_and_evaluate(run: Run, place: Path, tmp_path: Path) -> None:
    out = run("predict", place / "m.tailwise", place / "new.csv", "-o", tmp_path / "p.csv", "--keep", "kind")
    assert out.exit_code == 0, out.output
    table = pd.read_csv(tmp_path / "p.csv")
    assert list(table.columns)[:5] == ["kind", "prediction", "std", "lower", "upper"]
    assert len(table) == 150 and bool((table["lower"] <= table["upper"]).all())
    out = run("evaluate", place / "m.tailwise", place / "new.csv", "--json", "--report", tmp_path / "e.html")
    assert out.exit_code == 0, out.output
    told = json.loads(out.stdout)
    assert told["target"] == "price" and told["regions"]["all"]["n"] == 150
    assert (tmp_path / "e.html").exists()


def test_a_column_of_numbers_where_training_had_text_is_no_traceback(
    run: Run, sample: Sample, place: Path, tmp_path: Path
) -> None:
    sample(20).assign(kind=7).to_csv(tmp_path / "odd.csv", index=False)
    out = run("predict", place / "m.tailwise", tmp_path / "odd.csv", "-o", tmp_path / "p.csv")
    assert out.exit_code == 0, out.stderr
    sample(20).assign(x="far").to_csv(tmp_path / "odder.csv", index=False)
    out = run("predict", place / "m.tailwise", tmp_path / "odder.csv", "-o", tmp_path / "q.csv")
    assert out.exit_code == 1 and "column 'x' held numbers at fit, but row 0 holds 'far'" in out.stderr
    assert not (tmp_path / "q.csv").exists()
    stray = sample(20).astype({"x": object})
    stray.loc[4, "x"] = "far"
    stray.to_csv(tmp_path / "stray.csv", index=False)
    out = run("predict", place / "m.tailwise", tmp_path / "stray.csv", "-o", tmp_path / "q.csv")
    assert out.exit_code == 0
    assert out.stderr.count("note: column 'x' held numbers at fit, but row 4 holds 'far' (1 such of 20)") == 1


def test_what_training_never_had_is_told_of_once(
    run: Run, sample: Sample, place: Path, pair: Path, tmp_path: Path
) -> None:
    new, out = tmp_path / "new.csv", tmp_path / "p.csv"
    sample(40).assign(x=None, kind="green", rent=1.0).to_csv(new, index=False)
    for command in (["evaluate", pair / "m", new], ["predict", place / "m.tailwise", new, "-o", out]):
        done = run(*command)
        assert done.exit_code == 0, done.output
        assert done.stderr.count("note: column 'x' was never missing at fit, but is in 40 of 40 rows") == 1
        assert done.stderr.count("note: column 'kind' holds values unknown at fit, such as 'green',") == 1
    done = run("predict", place / "m.tailwise", place / "new.csv", "-o", out, "--force")
    assert done.exit_code == 0 and "note:" not in done.stderr


@pytest.mark.slow
def test_models_of_several_networks_are_exported_without_quantiles(
    run: Run, place: Path, tmp_path: Path
) -> None:
    model = tmp_path / "m.tailwise"
    out = run("fit", place / "houses.csv", "-t", "price", "-o", model, "--method", "ensemble", *FAST)
    assert out.exit_code == 0, out.output
    out = run("export", model)
    assert out.exit_code == 1 and "--quantiles ''" in out.stderr
    out = run("export", model, "--quantiles", "most")
    assert out.exit_code == 1 and "levels between 0 and 1, not 'most'" in out.stderr
    out = run("export", model, "--quantiles", "")
    assert out.exit_code == 0, out.stderr
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    assert [output.name for output in session.get_outputs()] == ["mean", "std", "lower", "upper"]


def test_diagnose_says_it_in_words_numbers_and_a_picture(run: Run, place: Path, tmp_path: Path) -> None:
    out = run("diagnose", place / "houses.csv", "--target", "price", "--plot", tmp_path / "p.png")
    assert out.exit_code == 0 and "Verdict:" in out.stdout
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    out = run("diagnose", place / "houses.csv", "--target", "price", "--plot", tmp_path / "p.xyz")
    assert out.exit_code == 1 and ".png, .svg or .pdf" in out.stderr
    only = tmp_path / "only.csv"
    only.write_text("y\n" + "\n".join(map(str, range(200))) + "\n")
    assert run("diagnose", only, "-t", "y").exit_code == 0


def test_compare_and_report_rank_methods(run: Run, place: Path, tmp_path: Path) -> None:
    results, page = tmp_path / "r.jsonl", tmp_path / "r.html"
    arguments = ["compare", place / "houses.csv", "-t", "price", "--methods", "vanilla,vir", "--seeds", "2"]
    out = run(*arguments, "-o", results, "--report", page, *FAST)
    assert out.exit_code == 0, out.output
    assert "lowest error" in out.stdout
    assert len(results.read_text().splitlines()) == 4
    assert not (tmp_path / "r.jsonl.checkpoint").exists()
    out = run("report", results, "-o", tmp_path / "again.html")
    assert out.exit_code == 0, out.output
    text = (tmp_path / "again.html").read_text(encoding="utf-8")
    assert "VIR" in text and 'role="img"' in text
    out = run("report", place / "houses.csv", "-o", tmp_path / "no.html")
    assert out.exit_code == 1 and "error:" in out.stderr
    out = run("compare", place / "houses.csv", "-t", "price", "--methods", "virr")
    assert out.exit_code == 1 and "'vir'" in out.stderr


def test_methods_are_listed(run: Run) -> None:
    listed = json.loads(run("methods", "--json").stdout)
    assert {"vir", "vanilla"} <= {m["name"] for m in listed}
    assert "vir" in run("methods").stdout


def test_version(run: Run) -> None:
    assert run("--version").stdout.startswith("tailwise ")


# -- several targets -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair(run: Run, sample: Sample, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table of two targets and a model of both."""
    folder = tmp_path_factory.mktemp("pair")
    sample().assign(rent=lambda t: 10 * t["price"] + t["z"]).to_csv(folder / "both.csv", index=False)
    fit = ["fit", folder / "both.csv", "--target", "rent", "--target", "price", "-o", folder / "m", *FAST]
    out = run(*fit)
    assert out.exit_code == 0, out.output
    assert out.stdout.count("90% intervals contain") == 2
    assert out.stdout.index("rent:") < out.stdout.index("price:")
    return folder


def test_predictions_of_several_targets_are_named_after_them(run: Run, pair: Path, tmp_path: Path) -> None:
    out = run("predict", pair / "m", pair / "both.csv", "-o", tmp_path / "p.csv", "--json")
    assert out.exit_code == 0, out.output
    assert set(json.loads(out.stdout)) == {"rows", "out", "region_rent", "region_price"}
    table = pd.read_csv(tmp_path / "p.csv")
    truth = pd.read_csv(pair / "both.csv")
    assert list(table.columns[:4]) == ["prediction_rent", "std_rent", "lower_rent", "upper_rent"]
    assert len(table.columns) == 14
    for target in ("rent", "price"):  # not mixed up: each is on the scale of its own
        assert abs(table[f"prediction_{target}"].mean() / truth[target].mean() - 1) < 0.5


def test_several_targets_are_evaluated_one_by_one(run: Run, pair: Path, tmp_path: Path) -> None:
    both = run("evaluate", pair / "m", pair / "both.csv", "--json")
    assert both.exit_code == 0, both.output
    told = {finding["target"]: finding for finding in json.loads(both.stdout)["targets"]}
    assert list(told) == ["rent", "price"]
    assert told["rent"]["regions"]["all"]["mae"] > 3 * told["price"]["regions"]["all"]["mae"]
    page = tmp_path / "rent.html"
    out = run("evaluate", pair / "m", pair / "both.csv", "-t", "price", "--report", page, "--json")
    assert out.exit_code == 0, out.output
    assert json.loads(out.stdout)["regions"] == told["price"]["regions"]
    assert "to predict price" in page.read_text(encoding="utf-8")
    renamed = pd.read_csv(pair / "both.csv").rename(columns={"rent": "a", "price": "b"})
    renamed.to_csv(tmp_path / "renamed.csv", index=False)
    out = run("evaluate", pair / "m", tmp_path / "renamed.csv", "-t", "a", "-t", "b", "--json")
    assert [f["regions"] for f in json.loads(out.stdout)["targets"]] == [f["regions"] for f in told.values()]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "both.csv", "-t", "rent", "-t", "price", "-o", "n", "--report", "r"], "tailwise evaluate n"),
        (["fit", "both.csv", "-t", "rent", "-t", "rent", "-o", "n"], "'rent' is named as a target twice"),
        (["evaluate", "m", "both.csv", "--report", "r.html"], "choose it with --target"),
        (["evaluate", "m", "both.csv", "-t", "x"], "the model's targets are rent, price"),
        (["diagnose", "both.csv", "-t", "rent", "-t", "price"], "takes one --target"),
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


# -- settings ------------------------------------------------------------------------------------


def test_a_configuration_file_gives_defaults_that_flags_override(
    run: Run, place: Path, tmp_path: Path
) -> None:
    config = tmp_path / "fit.toml"
    config.write_text(
        'target = "price"\nmethod = "lds"\nepochs = 1\ndrop = ["z"]\nquiet = true\njson = true\n'
        '[option]\n"weights.power" = 0.7\n'
    )
    out = run("fit", place / "houses.csv", "--config", config, "-o", tmp_path / "m")
    assert out.exit_code == 0, out.output
    assert json.loads(out.stdout)["model"] == str(tmp_path / "m")
    from tailwise import TailRegressor

    model = TailRegressor.load(tmp_path / "m")
    assert (model.method, model.epochs, model.method_options) == ("lds", 1, {"weights.power": 0.7})
    assert list(model.feature_names_in_) == ["x", "kind"]
    config.write_text(config.read_text().replace('"price"', '["price", "x"]'))
    out = run("fit", place / "houses.csv", "--config", config, "-o", tmp_path / "m1")
    assert TailRegressor.load(tmp_path / "m1").target_names_ == ["price", "x"]
    config.write_text(config.read_text().replace('["price", "x"]', '"price"'))
    out = run("fit", place / "houses.csv", "--config", config, "-o", tmp_path / "m2", "--method", "vanilla",
              "--option", "regularizer=0", "--test-share", "0")  # fmt: skip
    assert out.exit_code == 0, out.output
    assert TailRegressor.load(tmp_path / "m2").method == "vanilla"


def test_bins_are_a_number_or_edges(run: Run, place: Path, tmp_path: Path) -> None:
    fit = ["fit", place / "houses.csv", "-t", "price", "--method", "lds", "--no-baseline", *FAST]
    for name, given, edges in (("m", "-1,0.5,2,20", [-1, 0.5, 2, 20]), ("n", "7", None)):
        out = run(*fit, "-o", tmp_path / name, "--bins", given)
        assert out.exit_code == 0, out.output
        bins = TailRegressor.load(tmp_path / name).bins_
        assert list(bins.edges) == edges if edges else len(bins) == 7
    config = tmp_path / "c.toml"
    for name, given, count in (("o", "[-1, 0.5, 2, 20]", 3), ("p", "7", 7)):
        config.write_text(f"bins = {given}\n")
        out = run(*fit, "-o", tmp_path / name, "--config", config)
        assert out.exit_code == 0, out.output
        assert len(TailRegressor.load(tmp_path / name).bins_) == count


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("0", "--bins 0: a single number is the number of bins, a whole number of at least 1"),
        ("2.5", "edges are two or more comma-separated numbers"),
        ("0,1,1,2", "edges must increase, but 1 is followed by 1"),
        ("0,10,5", "edges must increase, but 10 is followed by 5"),
        ("0,1,", "'' is not a finite number"),
        ("0,ten", "'ten' is not a finite number"),
        ("0,inf", "'inf' is not a finite number"),
        ("", "'' is not a finite number"),
    ],
)
def test_bins_that_are_none_are_told_before_any_work(
    run: Run, tmp_path: Path, given: str, words: str
) -> None:
    out = run("fit", tmp_path / "unread.csv", "-t", "price", "-o", tmp_path / "m", "--bins", given)
    assert out.exit_code == 1 and words in out.stderr, out.output


def test_bins_beside_the_labels_are_refused(run: Run, place: Path, tmp_path: Path) -> None:
    fit = ["fit", place / "houses.csv", "-t", "price", "-o", tmp_path / "m", *FAST]
    out = run(*fit, "--bins", "1000,2000,3000")
    assert out.exit_code == 1 and "edges from 1000 to 3000 leave out" in out.stderr, out.output
    assert not list(tmp_path.iterdir())


def test_edges_that_diagnose_advises_are_taken_as_they_stand(
    run: Run, sample: Sample, tmp_path: Path
) -> None:
    table = sample().assign(price=lambda t: (3 * t["x"] + t["z"]).map(math.exp))
    table.to_csv(tmp_path / "skewed.csv", index=False)
    out = run("diagnose", tmp_path / "skewed.csv", "-t", "price")
    advised = re.search(r"set bins to (\S+,\S+)\)", out.stdout)
    assert advised is not None, out.stdout
    fit = ("fit", tmp_path / "skewed.csv", "-t", "price", "-o", tmp_path / "m", *FAST)
    out = run(*fit, "--bins", advised[1])
    assert out.exit_code == 0, out.output
    bins = TailRegressor.load(tmp_path / "m").bins_
    assert len(bins) == 20 and bins.counts.max() < 0.5 * bins.counts.sum()


@pytest.mark.parametrize(
    ("text", "words"),
    [('methd = "vir"\n', "did you mean 'method'?"), ("epochs = [\n", "not valid TOML")],
)
def test_wrong_configuration_names_the_key(
    run: Run, place: Path, tmp_path: Path, text: str, words: str
) -> None:
    config = tmp_path / "c.toml"
    config.write_text(text)
    out = run("fit", place / "houses.csv", "-t", "price", "-o", tmp_path / "m", "--config", config)
    assert out.exit_code == 1 and words in out.stderr
    out = run(
        "fit", place / "houses.csv", "-t", "price", "-o", tmp_path / "m", "--config", tmp_path / "no.toml"
    )
    assert out.exit_code == 1 and "no.toml" in out.stderr


def test_the_same_seed_gives_the_same_file(run: Run, place: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        out = run("fit", place / "houses.csv", "-t", "price", "-o", tmp_path / name, "--seed", "3", *FAST)
        assert out.exit_code == 0, out.output
    first, second = (pd.read_csv(_predicted(run, tmp_path / n, place, tmp_path)) for n in ("a", "b"))
    pd.testing.assert_frame_equal(first, second)


def _predicted(run: Run, model: Path, place: Path, folder: Path) -> Path:
    out = folder / f"{model.name}.csv"
    assert run("predict", model, place / "new.csv", "-o", out).exit_code == 0
    return out


def test_own_validation_and_test_tables(run: Run, sample: Sample, place: Path, tmp_path: Path) -> None:
    out = run("fit", place / "houses.csv", "-t", "price", "-o", tmp_path / "m", "--valid", place / "new.csv",
              "--test", place / "new.csv", "--json", *FAST)  # fmt: skip
    assert out.exit_code == 0, out.output
    assert json.loads(out.stdout)["regions"]["all"]["n"] == 150
    sample(50).drop(columns="kind").to_csv(tmp_path / "short.csv", index=False)
    out = run(
        "fit", place / "houses.csv", "-t", "price", "-o", tmp_path / "m2", "--test", tmp_path / "short.csv"
    )
    assert out.exit_code == 1 and "no column 'kind'" in out.stderr


def test_fit_measures_on_labels_alone_in_their_bins_too(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lone = list(range(20, 61, 10))
    prices = pd.DataFrame({"price": [1] * 60 + [2] * 60 + lone}).assign(x=lambda t: t["price"] % 7)
    prices.to_csv(tmp_path / "t.csv", index=False)
    trained: list[int] = []
    fit = TailRegressor.fit

    def seen(self: TailRegressor, X: Any, y: Any, **options: Any) -> TailRegressor:
        trained.extend(y)
        return fit(self, X, y, **options)

    monkeypatch.setattr(TailRegressor, "fit", seen)
    out = run("fit", tmp_path / "t.csv", "-t", "price", "-o", tmp_path / "m", *FAST)
    assert out.exit_code == 0, out.output
    assert [trained.count(price) for price in (1, 2)] == [48, 48]  # all but a fifth
    assert sum(price in trained for price in lone) == 4  # of these five too


def test_weights_are_those_of_fit_and_no_input(
    run: Run, sample: Sample, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = sample().assign(w=lambda t: 1.5 + (t["x"] > 0))
    table.loc[3, ["price", "w"]] = None  # a row without a label needs no weight
    table.to_csv(tmp_path / "weighed.csv", index=False)
    given = []
    fit = TailRegressor.fit

    def seen(self: TailRegressor, X: Any, y: Any, **options: Any) -> TailRegressor:
        given.append((self.method, X, options["sample_weight"]))
        return fit(self, X, y, **options)

    monkeypatch.setattr(TailRegressor, "fit", seen)
    (tmp_path / "c.toml").write_text('weight = "w"\n')
    line = ["fit", tmp_path / "weighed.csv", "-t", "price", "--seed", "3", *FAST]
    out = run(*line, "-o", tmp_path / "m", "--weight", "w", "--report", tmp_path / "m.html")
    assert out.exit_code == 0, out.output
    out = run(*line, "-o", tmp_path / "n", "--config", tmp_path / "c.toml", "--test", place / "new.csv",
              "--valid", place / "new.csv")  # fmt: skip
    assert out.exit_code == 0, out.output
    assert [method for method, *_ in given] == ["vir", "vanilla", "vir"]  # the baseline is weighed alike
    for _, X, weights in given:
        assert list(X.columns) == ["x", "z", "kind"]
        assert list(weights) == list(1.5 + (X["x"] > 0))  # each row its own, whichever were kept aside
    page = (tmp_path / "m.html").read_text(encoding="utf-8")
    assert "rows of weighed.csv, each counted as often as w says, to predict price from 3 columns" in page
    assert len(pd.read_csv(_predicted(run, tmp_path / "m", place, tmp_path))) == 150  # where there is no w


def test_rows_of_weight_0_are_not_trained_on(run: Run, sample: Sample, place: Path, tmp_path: Path) -> None:
    wrong = sample(100, seed=5).assign(price=50.0, w=0)
    sample().to_csv(tmp_path / "a-rows.csv", index=False)
    pd.concat([sample().assign(w=1), wrong]).to_csv(tmp_path / "b-rows.csv", index=False)
    for name, weight in (("a", []), ("b", ["--weight", "w"])):
        line = ["fit", tmp_path / f"{name}-rows.csv", "-t", "price", "-o", tmp_path / name, *weight]
        out = run(*line, "--test", place / "new.csv", *FAST)
        assert out.exit_code == 0, out.output
    first, second = (pd.read_csv(_predicted(run, tmp_path / n, place, tmp_path)) for n in ("a", "b"))
    pd.testing.assert_frame_equal(first, second)


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (None, "line 6 is empty (1 such of 40)"),
        (-0.5, "line 6 holds '-0.5'"),
        ("much", "line 6 holds 'much'"),
        (float("inf"), "line 6 holds 'inf'"),
    ],
)
def test_weights_that_are_none_name_the_column_and_the_line(
    run: Run, sample: Sample, tmp_path: Path, cell: object, words: str
) -> None:
    table = sample(40).assign(w=1.0).astype({"w": object})
    table.loc[4, "w"] = cell
    table.to_csv(tmp_path / "some.csv", index=False)
    out = run("fit", tmp_path / "some.csv", "-t", "price", "-o", tmp_path / "m", "--weight", "w")
    assert out.exit_code == 1 and words in out.stderr, out.output
    assert out.stderr.startswith("error: ") and "the weight 'w' must be a number of at least 0" in out.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--weight", "W"], "has no column 'W'; did you mean 'w'?"),
        (["--weight", "price"], "column 'price' is the target and cannot be the weight as well"),
        (["--weight", "none"], "the weight 'none' is 0 in every row"),
        (["--weight", "day"], "line 2 holds '2024-01-0"),
        (["--weight", "w", "--method", "smogn"], "smogn resamples rows, and rows cannot be resampled by"),
    ],
)
def test_weights_that_cannot_be_meant_are_one_line(
    run: Run, sample: Sample, tmp_path: Path, arguments: list[str], words: str
) -> None:
    rows = range(40)
    table = sample(40).assign(
        w=[1 + i / 7 for i in rows], none=0, day=[f"2024-01-0{1 + i % 9}" for i in rows]
    )
    table.to_csv(tmp_path / "some.csv", index=False)
    out = run("fit", tmp_path / "some.csv", "-t", "price", "-o", tmp_path / "m", *arguments, *FAST)
    assert out.exit_code == 1 and words in out.stderr, out.output
    assert out.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["some.csv"]


# -- what users get wrong ------------------------------------------------------------------------


@pytest.fixture
def trouble(tmp_path: Path) -> dict[str, Path]:
    contents = {
        "empty.csv": b"",
        "header.csv": b"x,price\n",
        "text.csv": b"x,price\n1,cheap\n2,dear\n3,cheap\n",
        "binary.csv": bytes(range(256)) * 30,
        "zip.csv": b"PK\x03\x04" + b"a" * 50,
        "twice.csv": b"x,x,price\n1,2,3\n",
        "ragged.csv": b"x,price\n1,2\n1,2,3\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    return {name: tmp_path / name for name in [*contents, "folder", "missing.csv"]}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("empty.csv", "is empty"),
        ("header.csv", "no rows"),
        ("text.csv", "must be numbers, but line 2 holds 'cheap'"),
        ("binary.csv", "binary"),
        ("zip.csv", "Excel"),
        ("twice.csv", "both named 'x'"),
        ("ragged.csv", "line 3"),
        ("folder", "is a folder"),
        ("missing.csv", "does not exist"),
    ],
)
def test_unusable_tables_end_with_a_line_and_code_1(
    run: Run, place: Path, trouble: dict[str, Path], tmp_path: Path, name: str, words: str
) -> None:
    for arguments in (
        ["diagnose", trouble[name], "-t", "price"],
        ["fit", trouble[name], "-t", "price", "-o", tmp_path / "m"],
        ["compare", trouble[name], "-t", "price"],
        ["evaluate", place / "m.tailwise", trouble[name], "-t", "price"],
    ):
        out = run(*arguments)
        assert out.exit_code == 1, arguments
        assert out.stderr.count("error:") == 1 and words in out.stderr, out.stderr
    assert not (tmp_path / "m").exists()


def test_wrong_columns_name_the_nearest(run: Run, sample: Sample, place: Path, tmp_path: Path) -> None:
    out = run("fit", place / "houses.csv", "--target", "prise", "--out", tmp_path / "m")
    assert out.exit_code == 1
    assert out.stderr.strip().endswith("did you mean 'price'?")
    sample(20).drop(columns=["kind"]).to_csv(tmp_path / "short.csv", index=False)
    out = run("predict", place / "m.tailwise", tmp_path / "short.csv", "-o", tmp_path / "p.csv")
    assert out.exit_code == 1 and "no column 'kind'" in out.stderr
    assert "its columns are x, z, price. The model was trained with it." in out.stderr
    out = run("predict", place / "m.tailwise", place / "new.csv", "-o", tmp_path / "p.csv", "--keep", "kin")
    assert out.exit_code == 1 and "'kind'" in out.stderr


def test_no_other_column_is_taken_for_the_target(
    run: Run, sample: Sample, place: Path, pair: Path, tmp_path: Path
) -> None:
    sample(40).assign(other=1).to_csv(tmp_path / "two.csv", index=False)
    assert run("evaluate", place / "m.tailwise", tmp_path / "two.csv").exit_code == 0  # the model knows it
    new = tmp_path / "new.csv"
    sample(40).rename(columns={"price": "cost"}).to_csv(new, index=False)
    out = run("evaluate", place / "m.tailwise", new)
    assert out.exit_code == 1 and out.stdout == ""
    assert f"{new} has no column 'price', the model's target" in out.stderr and "--target" in out.stderr
    out = run("evaluate", place / "m.tailwise", new, "-t", "cost", "--json")
    assert out.exit_code == 0 and json.loads(out.stdout)["target"] == "cost"
    sample(40).to_csv(new, index=False)
    out = run("evaluate", pair / "m", new)
    assert out.exit_code == 1 and "has no column 'rent', one of the model's targets" in out.stderr


def test_the_target_of_a_model_without_names_is_the_other_column_or_asked_for(
    run: Run, sample: Sample, tmp_path: Path
) -> None:
    table = sample(40)
    model = TailRegressor(epochs=1).fit(table.drop(columns="price"), table["price"].to_numpy())
    model.save(tmp_path / "m")
    table.rename(columns={"price": "cost"}).to_csv(tmp_path / "one.csv", index=False)
    out = run("evaluate", tmp_path / "m", tmp_path / "one.csv", "--json")
    assert out.exit_code == 0 and json.loads(out.stdout)["target"] == "cost"
    table.assign(other=1).to_csv(tmp_path / "two.csv", index=False)
    out = run("evaluate", tmp_path / "m", tmp_path / "two.csv")
    assert out.exit_code == 1 and "it may be price, other" in out.stderr
    assert run("evaluate", tmp_path / "m", tmp_path / "two.csv", "-t", "price").exit_code == 0


def test_models_that_are_none(run: Run, place: Path, tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"junk" * 100)
    for path in (tmp_path / "junk", tmp_path / "none", tmp_path, place / "houses.csv"):
        out = run("predict", path, place / "new.csv", "-o", tmp_path / "p.csv")
        assert out.exit_code == 1 and out.stderr.startswith("error:"), out.stderr


def test_wrong_usage_is_code_2(run: Run, place: Path, tmp_path: Path) -> None:
    for arguments in (
        ["fit", place / "houses.csv"],
        ["fit", place / "houses.csv", "-t", "price", "-o", tmp_path / "m", "--epochs", "many"],
        ["fit", place / "houses.csv", "-t", "price", "-o", tmp_path / "m", "--nonsense"],
        ["nonsense"],
    ):
        assert run(*arguments).exit_code == 2


def test_unknown_names_are_answered_before_any_work(run: Run, place: Path, tmp_path: Path) -> None:
    base = ["fit", place / "houses.csv", "-t", "price", "-o", tmp_path / "m", *FAST]
    for extra, words in (
        (["--method", "vri"], "'vir'"),
        (["--option", "regularizr=1"], "'regularizer'"),
        (["--option", "what"], "NAME=VALUE"),
        (["--backbone", "mpl"], "'mlp'"),
    ):
        out = run(*base, *extra)
        assert out.exit_code == 1 and words in out.stderr, out.stderr
    assert list(tmp_path.iterdir()) == []


def test_options_of_a_method_of_the_wrong_kind_are_named(run: Run, place: Path, tmp_path: Path) -> None:
    line = ("fit", place / "houses.csv", "-t", "price", "-o", tmp_path / "m", *FAST, "--option")
    out = run(*line, "regularizer=abc")
    assert out.exit_code == 1 and "error: regularizer must be a number, got 'abc'" in out.stderr
    out = run(*line, "recolor=yes")
    assert out.exit_code == 1 and "error: recolor must be true or false, got 'yes'" in out.stderr
    assert not (tmp_path / "m").exists()


def test_nothing_is_overwritten_without_force(run: Run, place: Path, tmp_path: Path) -> None:
    for name in ("m", "r.html", "p.csv"):
        (tmp_path / name).write_text("mine")
    fit = ["fit", place / "houses.csv", "-t", "price", *FAST]
    for arguments in (
        [*fit, "-o", tmp_path / "m"],
        [*fit, "-o", tmp_path / "m2", "--report", tmp_path / "r.html"],
        ["predict", place / "m.tailwise", place / "new.csv", "-o", tmp_path / "p.csv"],
    ):
        out = run(*arguments)
        assert out.exit_code == 1 and "--force" in out.stderr
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == dict.fromkeys(
        ("m", "r.html", "p.csv"), "mine"
    )
    out = run("predict", place / "m.tailwise", place / "new.csv", "-o", tmp_path / "p.csv", "--force")
    assert out.exit_code == 0 and (tmp_path / "p.csv").read_text() != "mine"
    copy = shutil.copy(place / "new.csv", tmp_path / "in.csv")
    out = run("predict", place / "m.tailwise", copy, "-o", copy, "--force")
    assert out.exit_code == 1 and "also an input" in out.stderr
    assert Path(copy).read_bytes() == (place / "new.csv").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "houses.csv", "-t", "price", "-o", "-"], "only predictions can be written to -"),
        (["evaluate", "m.tailwise", "new.csv", "--report", "-"], "only predictions can be written to -"),
        (["evaluate", "m.tailwise", "new.csv", "-t", "price", "-t", "price"], "as a target twice"),
        (["predict", "m.tailwise", "new.csv", "-o", "-", "--json"], "both use standard output"),
        (["report", "."], ". is a folder"),
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
def test_a_place_that_takes_no_files_is_named_before_any_training(run: Run, place: Path, path: str) -> None:
    for where in (["-o", path], ["-o", place / "never", "--report", path]):
        out = run("fit", place / "houses.csv", "-t", "price", "--epochs", "1", *where)
        assert out.exit_code == 1 and len(out.stderr.splitlines()) == 1, out.output
        assert out.stderr.startswith(f"error: cannot write {path}: no file can be created in /proc (")
    assert not (place / "never").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [('{"a": 1}\n', "a line lacks 'data'"), ("[1]\n", "is not a results file"), ("3\n", "is not a results"),
     ("", "no finished run")],
)  # fmt: skip
def test_a_foreign_results_file(run: Run, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "f.jsonl").write_text(text)
    out = run("report", tmp_path / "f.jsonl")
    assert out.exit_code == 1 and words in out.stderr and "not str" not in out.stderr
    assert not (tmp_path / "f.html").exists()


def test_two_models_are_told_by_the_regions_of_the_first(
    run: Run, sample: Sample, place: Path, tmp_path: Path
) -> None:
    sample(60, seed=4).to_csv(tmp_path / "few.csv", index=False)
    out = run("fit", tmp_path / "few.csv", "-t", "price", "-o", tmp_path / "m", *FAST)
    assert out.exit_code == 0, out.output
    line = ["evaluate", place / "m.tailwise", place / "new.csv", "--against", tmp_path / "m", "--json"]
    told = json.loads(run(*line).stdout)
    rows = {k: [told[k][r]["n"] for r in ("many", "medium", "few")] for k in ("regions", "baseline")}
    assert rows["baseline"] == rows["regions"]


def test_the_demonstration_overwrites_nothing_either(run: Run, tmp_path: Path) -> None:
    (tmp_path / "demo.png").write_text("mine")
    out = run("demo", "--out", tmp_path)
    assert out.exit_code == 1 and "demo.png already exists" in out.stderr and "--force" in out.stderr
    assert (tmp_path / "demo.png").read_text() == "mine"


def test_leaking_columns_are_pointed_out(run: Run, sample: Sample, place: Path, tmp_path: Path) -> None:
    table = sample(60)
    table.assign(copy=table["price"] * 2).to_csv(tmp_path / "leak.csv", index=False)
    out = run("fit", tmp_path / "leak.csv", "-t", "price", "-o", tmp_path / "m", "--epochs", "1")
    assert out.exit_code == 0, out.output
    assert "--drop copy" in out.stderr
    table.assign(**{"a copy, too": table["price"] * 2}).to_csv(tmp_path / "leak.csv", index=False)
    line = ("fit", tmp_path / "leak.csv", "-t", "price", "-o", tmp_path / "n", "--epochs", "1")
    assert """--drop '"a copy, too"'""" in run(*line).stderr
    out = run(*line, "--force", "--drop", '"a copy, too"')
    assert out.exit_code == 0 and "--drop" not in out.stderr
    (tmp_path / "c.toml").write_text('drop = ["a copy, too", "z"]')
    out = run(*line, "--force", "--config", tmp_path / "c.toml")
    assert out.exit_code == 0 and "--drop" not in out.stderr
    assert list(TailRegressor.load(tmp_path / "n").feature_names_in_) == ["x", "kind"]


def test_what_may_be_other_than_it_looks_is_pointed_out(run: Run, sample: Sample, tmp_path: Path) -> None:
    table = sample(60)
    table.assign(price=7, fee=["$1,250.00", "$3.50"] * 30).to_csv(tmp_path / "odd.csv", index=False)
    out = run("fit", tmp_path / "odd.csv", "-t", "price", "-o", tmp_path / "m", "--epochs", "1")
    assert out.exit_code == 0, out.output
    assert "column 'fee' may be read as text because of cells such as '$1,250.00'" in out.stderr
    assert "the target 'price' is 7 in every row: there is nothing to learn" in out.stderr


def test_ids_are_pointed_out(run: Run, sample: Sample, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    sample(60).assign(**{"house no": [f"h{i}" for i in range(60)]}).to_csv(path, index_label="row")
    line = ("fit", path, "-t", "price", "-o", tmp_path / "m", "--epochs", "1", "--test", path)
    out = run(*line)
    assert out.exit_code == 0, out.output
    for words in (
        "column 'house no' differs in every row, as ids do: leave it out with --drop 'house no'",
        "column 'row' counts the rows, as ids do: leave it out with --drop row unless it has a",
    ):
        assert out.stderr.count(words) == 1, out.stderr
    out = run(*line, "--force", "--drop", "house no,row")
    assert out.exit_code == 0 and "--drop" not in out.stderr


def test_a_target_with_many_zeros_is_told_of_as_diagnose_does(
    run: Run, sample: Sample, tmp_path: Path
) -> None:
    path = tmp_path / "claims.csv"
    sample().assign(price=lambda t: t["price"].where(t["z"] > 0, 0)).to_csv(path, index=False)
    (said,) = re.findall(
        r"\d+% of the labels are exactly 0[^\n]*", run("diagnose", path, "-t", "price").stdout
    )
    fit = ("fit", path, "-t", "price", "-o", tmp_path / "m", "--epochs", "1")
    out = run(*fit)
    assert out.exit_code == 0 and f"note: target 'price': {said}\n" in out.stderr, out.output
    assert "exactly" not in run(*fit, "--force", "--quiet").stderr


def test_infinite_numbers_are_told_before_any_training(
    run: Run, sample: Sample, place: Path, tmp_path: Path
) -> None:
    table = sample(60)
    for row in range(5):  # whichever rows are kept aside
        endless = table.assign(x=table["x"].where(table.index != row, float("inf")))
        endless.to_csv(tmp_path / "t.csv", index=False)
        out = run("fit", tmp_path / "t.csv", "-t", "price", "-o", tmp_path / "m", "--epochs", "1")
        assert out.exit_code == 1 and f"column 'x' is infinite in line {row + 2}" in out.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]
    out = run("predict", place / "m.tailwise", tmp_path / "t.csv", "-o", tmp_path / "p.csv")
    assert out.exit_code == 1 and "column 'x' is infinite in line 6" in out.stderr


def test_an_unforeseen_error_is_one_line_too(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tailwise.report.diagnosis

    def broken(*_: object, **__: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(tailwise.report.diagnosis, "diagnose", broken)
    out = run("diagnose", place / "houses.csv", "-t", "price")
    assert out.exit_code == 1 and "unexpected KeyError" in out.stderr and "TAILWISE_DEBUG" in out.stderr
    monkeypatch.setenv("TAILWISE_DEBUG", "1")
    assert isinstance(run("diagnose", place / "houses.csv", "-t", "price").exception, KeyError)
