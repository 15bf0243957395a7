"""Suites are files: what they may say, and the names of contenders in them."""

from pathlib import Path

import numpy as np
import pytest

from research.tests.conftest import RESULTS, small_problem
from tailwise.report.results import read_results
from tailwise_bench.choose import choose_contenders, split_methods
from tailwise_bench.estimators import choose_estimators
from tailwise_bench.holes import HOLES, Holed
from tailwise_bench.problem import HOLE, Problem
from tailwise_bench.suites import BUNDLED, get_suite

OWN = """
methods = ["vanilla", "vir[weights.power=0.25]"]
seeds = 3

[tables.prices]
file = "prices.csv"
target = "price"
drop = ["id"]

[options.vanilla]
losses = ["absolute"]

[recipe]
backbone = "mlp-ple"
backbone_options = { bins = 4 }
train = { epochs = 2 }
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    rows = "".join(f"{i},{i % 7},{(i % 50) ** 2}\n" for i in range(400))
    (tmp_path / "prices.csv").write_text("id,a,price\n" + rows)
    (tmp_path / "own.toml").write_text(OWN)
    return tmp_path / "own.toml"


@pytest.mark.parametrize("name", BUNDLED)
def test_a_bundled_suite_and_its_contenders(name: str) -> None:
    suite = get_suite(name)
    names = suite.methods
    assert choose_estimators(names) if suite.split == "natural" else choose_contenders(names, suite.options)


def test_a_suite_of_ones_own_tables(own: Path) -> None:
    suite = get_suite(str(own))
    problem = suite.sources[0].problem(0)
    assert problem.x_train.shape[1] == 1 and set(problem.y_test) <= {i**2 for i in range(50)}
    assert suite.recipe.build(problem).feature_dim > 0
    (contender,) = choose_contenders(["vanilla"], suite.options)
    assert contender.fixed == {"losses": ["absolute"]}


def test_an_optional_table_without_a_file_is_left_out(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = '[tables.rents]\nfile = "$TAILWISE_DATA/rents.csv"\ntarget = "rent"\n'
    own.write_text(OWN + missing.replace("\n", "\noptional = true\n", 1))
    monkeypatch.delenv("TAILWISE_DATA", raising=False)
    assert [table.name for table in get_suite(str(own)).sources] == ["prices"]
    own.write_text(OWN + missing)
    with pytest.raises(ValueError, match=r"rents is read from .*: set the variable TAILWISE_DATA"):
        get_suite(str(own)).sources[1].problem(0)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("seeds", "seed", "the suite has no option 'seed'; did you mean 'seeds'"),
        ("seeds = 3", "seeds = 0", "suite.seeds must be a whole number of at least 1, got 0"),
        ("epochs", "epoch", "unknown key of .recipe.train. 'epoch'; did you mean 'epochs'"),
        ("mlp-ple", "mlp-plx", "unknown backbone 'mlp-plx'"),
        ("drop =", "dropp =", r"\[tables.prices\]: unknown key 'dropp'"),
        ("target =", "#", "give `target`"),
        ("losses", "loses", r"\[options.vanilla\]"),
        ("seeds = 3", "holes = ['blindspot']", "unknown hole 'blindspot'; did you mean 'blind-spot'"),
        ("train =", "budget = { second = 3 }\ntrain =", "has no option 'second'; did you mean 'seconds'"),
        ("train =", "budget = { seconds = 3, gradients = 4 }\ntrain =", "a budget is one number"),
    ],
)
def test_mistakes_in_a_suite_are_named(own: Path, old: str, new: str, words: str) -> None:
    own.write_text(OWN.replace(old, new, 1))
    with pytest.raises(ValueError, match=words):
        get_suite(str(own))


def test_names_with_options() -> None:
    assert split_methods("lds, vir[weights.clip=(1, 20)],all") == ["lds", "vir[weights.clip=(1, 20)]", "all"]
    dial, plain = choose_contenders(["vir[exponent=0.25 and dial]", "vir[head.sharpness=0.5 and bins=20]"])
    assert [dial.name, *dial.variants] == [
        "vir[exponent=0.25]", "vir[exponent=0.25 and dial]", "vir[exponent=0.25 and dial for few shots]",
    ]  # fmt: skip
    assert plain.fixed == {"head.sharpness": 0.5, "bins": 20}


@pytest.mark.parametrize(
    ("name", "words"),
    [("virr", "did you mean 'vir'"), ("xyzxyz", "a group"), ("vir[weights.powr=1]", "power")],
)
def test_an_unknown_name_is_answered_in_a_line(name: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        choose_contenders([name])
    assert len(str(error.value)) < 250


@pytest.mark.parametrize("hole", HOLES)
def test_a_hole_has_no_training_or_validation_label_and_keeps_the_test(hole: str) -> None:
    class Source:
        name = "small"

        def problem(self, seed: int, max_rows: int = 0) -> Problem:
            return small_problem(seed=seed, rows=2000)

    whole, holed = small_problem(rows=2000), Holed(Source(), hole).problem(0)
    low, high = np.quantile(whole.y_train, HOLES[hole].levels, method="higher")
    parts = {part: getattr(holed, f"y_{part}") for part in ("train", "valid", "test")}
    inside = {part: ((y >= low) & (y <= high)) != HOLES[hole].outside for part, y in parts.items()}
    assert not inside["train"].any() and not inside["valid"].any()
    assert 0 < len(holed.x_train) == len(holed.y_train) < len(whole.y_train)
    np.testing.assert_array_equal(holed.extra[HOLE], inside["test"])
    np.testing.assert_array_equal(holed.y_test, whole.y_test)
    np.testing.assert_array_equal(holed.bins.edges, whole.bins.edges)


def test_an_extrapolation_leaves_out_ends_that_many_rows_have() -> None:
    labels = np.repeat([0.0, 1.0, 2.0, 3.0], [60, 20, 15, 5])
    assert HOLES["extrapolation"].ends(labels) == (1.0, 2.0)
    assert HOLES["bimodal"].ends(labels) == (0.0, 2.0)


@pytest.mark.parametrize("name", ["tabular", "stsb-modern"])
def test_rows_are_those_of_stored_lines(name: str, data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILWISE_DATA", str(data_root))
    stored = {(r["data"], r["seed"]): r["digest"] for r in read_results(RESULTS / f"{name}.jsonl")}
    source = get_suite(name).sources[0]
    assert source.problem(0).digest == stored[source.name, 0]
