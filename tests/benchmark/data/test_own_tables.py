"""Tables of the user's own in a suite's file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tailwise.benchmark.data.configurations import read_configuration
from tailwise.benchmark.data.suites import generated, get_suite, prepare
from tailwise.benchmark.run.results import read_results
from tests.benchmark.conftest import run_bench

SUITE = """
methods = ["vanilla", "lds"]
seeds = 1
max_rows = 100
[recipe]
trials = 1
[recipe.train]
epochs = 1
lr = 0.01
[tables.wages]
file = "tables/wages.csv"
target = "y"
drop = ["x7"]
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "tables").mkdir()
    table = generated(300)
    table.loc[0, "y"] = np.nan
    table.to_csv(tmp_path / "tables" / "wages.csv", index=False)
    path = tmp_path / "own.toml"
    path.write_text(SUITE, encoding="utf-8")
    return path


def test_a_suite_of_a_csv_runs(suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path / "tables")  # paths are relative to the suite's file
    places = ["--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    assert run_bench(["suite", str(suite), *places]) == 0
    records = read_results(tmp_path / "out" / "results.jsonl")
    assert {(record["data"], record["method"]) for record in records} == {
        ("wages", "vanilla"),
        ("wages", "lds"),
    }
    assert {(record["rows"]["train"], record["rows"]["table"]) for record in records} == {(100, 299)}
    assert {record["recipe"]["lr"] for record in records} == {0.01}
    page = (tmp_path / "out" / "own.md").read_text(encoding="utf-8")
    assert "Validation and test parts are balanced over label bins" in page


def test_the_recipe_is_that_of_tables_unless_the_file_says_otherwise(suite: Path) -> None:
    recipe = get_suite(str(suite)).recipe
    assert (recipe.backbone, recipe.train.patience, list(recipe.search)) == ("mlp", 10, ["weight_decay"])
    suite.write_text(SUITE.replace("[recipe]", '[recipe]\nbackbone = "mlp-ple"'), encoding="utf-8")
    found = get_suite(str(suite))
    problem = found.sources[0].problem(0, max_rows=50, per_bin=5, suite="own")
    assert problem.x_train.shape[0] == 50 and found.recipe.build(problem).feature_dim == 64
    assert found.recipe.build_decoder(problem, 3).weight.shape == (problem.x_train.shape[1], 3)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('file = "tables/wages.csv"', "", r"\[tables.wages\]: 'file' is missing"),
        ('target = "y"', "", r"\[tables.wages\]: 'target' is missing"),
        ("target", "targt", r"\[tables.wages\]: unknown key 'targt'; did you mean 'target'"),
        ('drop = ["x7"]', 'drop = "x7"', "drop must be a list, each a string, got 'x7'"),
        ("[tables.wages]", "[tables.'a/b']", "'a/b' cannot be a file's name"),
        ("[recipe]", '[recipe]\nbackbone = "mpl"', "unknown backbone 'mpl'; did you mean 'mlp'"),
        ("[recipe]", "[recipe]\nbackbone_options = {hiden = [8]}", "did you mean 'hidden'"),
    ],
)
def test_mistakes_are_named(suite: Path, old: str, new: str, message: str) -> None:
    suite.write_text(SUITE.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_configuration(suite)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("wages.csv", "wage.csv", "wage.csv does not exist"),
        ('"y"', '"Y"', "has no column 'Y'; did you mean 'y'"),
        ('"x7"', '"x8"', "has no column 'x8'"),
        ('"y"', '"kind"', "target 'kind'"),
    ],
)
def test_a_wrong_file_or_column_is_named(
    suite: Path, tmp_path: Path, old: str, new: str, message: str
) -> None:
    suite.write_text(SUITE.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        prepare(str(suite), tmp_path / "work", [0])


def test_prepared_rows_of_another_state_of_the_file_are_refused(suite: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    prepare(str(suite), work, [0])
    assert prepare(str(suite), work, [0]) == [work / "wages-0.npz"]
    generated(200).to_csv(tmp_path / "tables" / "wages.csv", index=False)
    with pytest.raises(ValueError, match=r"was prepared with rows of wages = .*: delete it, or name another"):
        prepare(str(suite), work, [0])
