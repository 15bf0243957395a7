"""STS-B-DIR in the benchmark: configurations as files, problems of words and of vectors, one small run."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tailwise.benchmark.__main__ import main
from tailwise.benchmark.data.configurations import BUNDLED, read_configuration
from tailwise.benchmark.data.problems import Problem
from tailwise.benchmark.data.stsb import DATA, NETWORKS
from tailwise.benchmark.data.suites import get_suite
from tailwise.benchmark.pages.published import PRESETS
from tailwise.benchmark.run.ablations import is_ablation
from tailwise.benchmark.run.contenders import choose_contenders
from tailwise.benchmark.run.results import read_results
from tailwise.learning.config import learning_rate

WORDS = [
    "a",
    "man",
    "is",
    "playing",
    "the",
    "old",
    "guitar",
    "and",
    "woman",
    "dog",
    "runs",
    "in",
    "big",
    "red",
    "field",
    "near",
    "house",
]


def _sentence(rng: np.random.Generator) -> str:
    return " ".join(rng.choice(WORDS, rng.integers(3, 12)))


@pytest.fixture
def stsb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """STS-B-DIR in small: generated sentences and vectors in the same layout."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "data" / "stsb-dir"
    folder.mkdir(parents=True)
    vectors: dict[str, np.ndarray] = {}
    for part, rows in (("train", 120), ("dev", 40), ("test", 40)):
        header = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
        scores = np.round(rng.uniform(0, 5, rows) ** 2 / 5, 3)
        lines = [
            f"{i}\tmain\tx\t2012\t{i}\tnone\tnone\t{_sentence(rng)}\t{_sentence(rng)}\t{score}"
            for i, score in enumerate(scores)
        ]
        (folder / f"{part}.tsv").write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
        for side in "ab":
            vectors[f"{part}_{side}"] = rng.normal(size=(rows, 8)).astype(np.float16)
        vectors[f"{part}_y"] = scores
    np.savez(folder / "minilm384.npz", **vectors)
    np.savez(
        folder / "glove6B_50+100d.npz",
        words=np.array(WORDS),
        vectors=rng.normal(size=(len(WORDS), 6)).astype(np.float32),
    )
    monkeypatch.setenv("TAILWISE_DATA", str(tmp_path / "data"))
    return folder


def test_bundled_configurations_are_suites() -> None:
    assert set(BUNDLED) == {"stsb-paper", "stsb-modern"}
    for name in BUNDLED:
        suite = get_suite(name)
        methods = suite.methods.split(",")
        assert set(PRESETS) <= set(methods)
        assert sum(not is_ablation(method) for method in methods) == 13 + 2
        assert len(choose_contenders(methods)) == len(methods)  # ablations are known by their names
    # The paper's optimiser and epochs: Adam, 100 of them, a tenth of the learning rate from 60 and 90 on.
    train = get_suite("stsb-paper").recipe.train
    assert (train.optimizer, train.epochs, train.batch_size, train.schedule) == ("adam", 100, 256, "step")
    rates = [learning_rate(epoch, train) / train.lr for epoch in (0, 59, 60, 89, 90)]
    assert rates == pytest.approx([1, 1, 0.1, 0.1, 0.01])


def test_problem_of_words(stsb: Path, tmp_path: Path) -> None:
    problem = DATA["stsb-words"].problem(0)
    assert problem.x_train.shape[:2] == (120, 2)
    assert problem.x_train.dtype == np.int32
    assert len(problem.bins) == 50
    assert problem.extra["vectors"].shape[0] > problem.x_train.max()
    again = Problem.load(problem.save(tmp_path).parent, "stsb", 0)
    assert again.digest == problem.digest
    assert again.shots == (100, 30)
    features = NETWORKS["bilstm-pair"](problem, hidden=4, projection=5).feature_dim
    assert features == 5
    assert NETWORKS["mean-pair"](problem, projection=3).feature_dim == 3


def test_problem_of_vectors(stsb: Path) -> None:
    problem = DATA["stsb-vectors"].problem(0)
    assert problem.x_train.shape == (120, 2, 8)
    assert NETWORKS["vector-pair"](problem, hidden=(7,)).feature_dim == 7


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


SMALL = """
data = "stsb-words"
methods = ["vanilla", "vir"]
seeds = 1
[recipe]
backbone = "bilstm-pair"
criterion = "mse"
trials = 1
[recipe.backbone_options]
hidden = 4
projection = 6
[recipe.train]
epochs = 2
batch_size = 32
accelerator = "cpu"
[options.vir]
kl = 0.01
"""


def test_a_configuration_file_runs(stsb: Path, tmp_path: Path) -> None:
    path = _write(tmp_path / "own.toml", SMALL)
    prepared, out = tmp_path / "prepared", tmp_path / "out.jsonl"
    assert main(["prepare", "--suite", str(path), "--seeds", "1", "--out", str(prepared)]) == 0
    run = ["run", "--prepared", str(prepared), "--methods", "vanilla,vir", "--seeds", "1", "--out", str(out)]
    assert main(run) == 0
    records = {record["method"]: record for record in read_results(out)}
    assert set(records) == {"vanilla", "vir"}
    assert records["vir"]["fixed"] == {"kl": 0.01} and "fixed" not in records["vanilla"]
    for record in records.values():
        table = record["metrics"]["raw"]["all"]
        assert table["mse"] == pytest.approx(table["rmse"] ** 2, rel=1e-4)
        assert -1 <= table["spearman"] <= 1


VECTORS = SMALL.replace("words", "vectors").replace("bilstm-pair", "vector-pair")
VECTORS = VECTORS.replace("hidden = 4\nprojection = 6", "hidden = [6]")


@pytest.mark.parametrize(("text", "dim"), [(SMALL, 12), (VECTORS, 16)], ids=["words", "vectors"])
def test_a_decoder_reconstructs_both_sentences(text: str, dim: int, stsb: Path, tmp_path: Path) -> None:
    suite = get_suite(str(_write(tmp_path / "own.toml", text)))
    problem = suite.sources[0].problem(0, max_rows=0, per_bin=0, suite="own")
    plain, whole = choose_contenders(["vir[fixed]", "vir[reconstruction=of the input]"])
    sizes = [contender.fit(problem, {}, suite.recipe).parameters for contender in (plain, whole)]
    assert sizes[1] - sizes[0] == (6 + 1) * dim  # a layer from the latent to both sentences' vectors


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('data = "stsb-words"', 'data = "stsb-word"', "did you mean 'stsb-words'"),
        ("epochs = 2", "epoch = 2", r"\[recipe.train\]: unknown key 'epoch'; did you mean 'epochs'"),
        ("criterion", "criteron", "did you mean 'criterion'"),
        ('"bilstm-pair"', '"bilstm"', "unknown backbone 'bilstm'; did you mean 'bilstm-pair'"),
        ("[options.vir]", "[options.vr]", "did you mean 'vir'"),
        ("seeds = 1", "seed = 1", "did you mean 'seeds'"),
        ("seeds = 1", "seeds = = 1", "is not a TOML file"),
        ('data = "stsb-words"', "", "'data' is missing"),
        ('backbone = "bilstm-pair"', "", r"\[recipe\]: 'backbone' is missing"),
        ("batch_size = 32", "batch_size = 0", r"own.toml, \[recipe\]: batch_size must be positive, got 0"),
        ("kl = 0.01", "kll = 0.01", r"own.toml, \[options.vir\]: unknown option 'kll'; did you mean 'kl'"),
        ("kl = 0.01", "weights.powr = 1", r"\[options.vir\]: unknown option 'powr' of weights; did you mean"),
        ("kl = 0.01", "epochs = -1", r"\[options.vir\]: epochs must be positive"),
        ('["vanilla", "vir"]', '"vanilla,vir"', r"methods must be a list, each a string, got 'vanilla,vir'"),
        ('["vanilla", "vir"]', "[]", "methods names none"),
        ("seeds = 1", 'seeds = "one"', "own.toml: seeds must be a whole number, got 'one'"),
        ("seeds = 1", "seeds = 0", "seeds must be at least 1, got 0"),
        ('data = "stsb-words"', "data = 3", "data must be a string, got 3"),
        ("trials = 1", "trials = 1.5", r"\[recipe\]: trials must be a whole number, got 1.5"),
        ('criterion = "mse"', 'criterion = "mze"', "unknown metric 'mze'; did you mean 'mse'"),
        ("epochs = 2", 'epochs = "2"', r"\[recipe.train\]: epochs must be a whole number, got '2'"),
        ("epochs = 2", "milestones = 3", r"milestones must be a list, each a number, got 3"),
        ("batch_size = 32", "clip_norm = true", "clip_norm must be a number, got True"),
        (
            "projection = 6",
            "projektion = 6",
            r"\[recipe.backbone_options\]: unknown key 'projektion'",
        ),
        ("projection = 6", 'projection = "wide"', "projection must be a whole number, got 'wide'"),
        ("[options.vir]\nkl = 0.01", "[options]\nvir = 3", r"\[options\]: vir must be a table, got 3"),
    ],
)
def test_mistakes_in_a_configuration_are_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = _write(tmp_path / "own.toml", SMALL.replace(old, new, 1))
    with pytest.raises(ValueError, match=message):
        read_configuration(path)


def test_a_configuration_in_another_folder_runs_from_anywhere(
    stsb: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "configurations"
    folder.mkdir()
    path = _write(folder / "own.toml", SMALL)
    monkeypatch.chdir(folder.parent)
    places = ["--out", "out", "--work", "work"]
    assert main(["suite", str(path), *places]) == 0
    assert sorted(p.name for p in Path("out").iterdir()) == ["own.csv", "own.md", "own.tex", "results.jsonl"]
    assert {r["suite"] for r in read_results(Path("out/results.jsonl"))} == {"own"}
    # The same file by another path, and from what was prepared for it, in another folder.
    assert main(["suite", "configurations/own.toml", *places]) == 0
    assert len(read_results(Path("out/results.jsonl"))) == 2
    monkeypatch.chdir(folder)
    run = ["run", "--prepared", "../work/own", "--out", "../out/results.jsonl", "--seeds", "1"]
    assert main([*run, "--methods", "lds"]) == 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("batch_size = 32", "batch_size = 32\nlr = 0.5", r"holds runs with lr = 0.001, not 0.5"),
        ("batch_size = 32", 'batch_size = 32\nprecision = "bf16"', "holds runs with precision = fp32"),
        ("kl = 0.01", "kl = 0.5", r"runs of vir with {'kl': 0.01}, not {'kl': 0.5}"),
        ("[options.vir]", "[options.vanilla]", r"runs of vanilla with {}, not {'kl': 0.01}"),
    ],
)
def test_another_recipe_is_not_taken_for_the_same(
    stsb: Path, tmp_path: Path, old: str, new: str, message: str
) -> None:
    path = _write(tmp_path / "own.toml", SMALL)
    command = ["suite", str(path), "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    assert main(command) == 0
    _write(path, SMALL.replace(old, new, 1))
    for seeds in ("1", "2"):  # nothing is left to run, or something
        with pytest.raises(ValueError, match=message):
            main([*command, "--seeds", seeds])


def test_what_a_page_of_pairs_says_about_its_runs(stsb: Path, tmp_path: Path) -> None:
    path = _write(tmp_path / "own.toml", SMALL)
    out = tmp_path / "out"
    assert main(["suite", str(path), "--out", str(out), "--work", str(tmp_path / "work")]) == 0
    page = (out / "own.md").read_text(encoding="utf-8")
    assert "2 contenders on 1 data set with seed 0: 2 runs of 2." in page
    assert "The parts are those of the data set itself." in page and "balanced over label bins" not in page
    assert "Early stopping goes by the validation part's mse. Nothing is tuned." in page
    assert "lr 0.001" in page and "rank of 2 contenders over 1 data set;" in page


def test_no_page_is_written_where_every_run_failed(
    stsb: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = SMALL.replace('["vanilla", "vir"]', '["smogn"]').partition("[options.vir]")[0]
    path = _write(tmp_path / "own.toml", text)  # a method for tables, which pairs of sentences are not
    assert main(["suite", str(path), "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]) == 1
    assert "0 runs in" in capsys.readouterr().err
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["results.jsonl"]


def test_unknown_suites_and_missing_files_are_usage_errors(capsys: pytest.CaptureFixture[str]) -> None:
    for name, message in (("stsb-papr", "did you mean 'stsb-paper'"), ("gone.toml", "gone.toml")):
        with pytest.raises(SystemExit) as caught:
            main(["suite", name])
        assert caught.value.code == 2
        assert message in capsys.readouterr().err


def test_data_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAILWISE_DATA", raising=False)
    with pytest.raises(ValueError, match="set TAILWISE_DATA"):
        DATA["stsb-words"].problem(0)


@pytest.mark.skipif("TAILWISE_DATA" not in os.environ, reason="TAILWISE_DATA is not set")
def test_real_regions_are_those_of_dir() -> None:
    from tailwise.data import dir_shots, load_stsb_dir

    problem = DATA["stsb-vectors"].problem(0)
    ours = problem.bins.regions(*problem.shots)[problem.bins.index(problem.y_test)]
    scores = load_stsb_dir(Path(os.environ["TAILWISE_DATA"]) / "stsb-dir").test.score
    assert (ours == dir_shots(scores)).all()
    assert {region: int((ours == region).sum()) for region in ("many", "medium", "few")} == {
        "many": 756,
        "medium": 170,
        "few": 74,
    }
