"""STS-B-DIR in the benchmark: configurations as files, problems of words and of vectors, one small run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailwise.benchmark.data.configurations import BUNDLED, read_configuration
from tailwise.benchmark.data.suites import get_suite
from tailwise.benchmark.pages.stsb_page import PRESETS
from tailwise.benchmark.run.ablations import is_ablation
from tailwise.benchmark.run.contenders import choose_contenders
from tailwise.benchmark.run.results import read_results
from tailwise.training.config import learning_rate
from tests.benchmark.conftest import run_bench


def test_bundled_configurations_are_suites() -> None:
    assert {"stsb-paper", "stsb-modern", "utkface", "agedb-paper", "imdb-wiki-paper"} <= set(BUNDLED)
    for name in ("stsb-paper", "stsb-modern"):  # those of faces and depth maps are in their own tests
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
kl = { weight = 0.01 }
"""


def test_a_configuration_file_runs(stsb: Path, tmp_path: Path) -> None:
    path = _write(tmp_path / "own.toml", SMALL)
    prepared, out = tmp_path / "prepared", tmp_path / "out.jsonl"
    assert run_bench(["prepare", "--suite", str(path), "--seeds", "1", "--out", str(prepared)]) == 0
    run = ["run", "--prepared", str(prepared), "--methods", "vanilla,vir", "--seeds", "1", "--out", str(out)]
    assert run_bench(run) == 0
    records = {record["method"]: record for record in read_results(out)}
    assert set(records) == {"vanilla", "vir"}
    assert records["vir"]["fixed"] == {"kl": {"weight": 0.01}} and "fixed" not in records["vanilla"]
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
        ('data = "stsb-words"', "", r"give `data`, or tables such as \[tables.prices\], and not both"),
        ("[options.vir]", "[tables.a]\n[options.vir]", "and not both"),
        ('methods = ["vanilla", "vir"]', "", "'methods' is missing"),
        ("seeds = 1", "max_rows = 0", "max_rows must be at least 1, got 0"),
        ('backbone = "bilstm-pair"', "", r"\[recipe\]: 'backbone' is missing"),
        ("batch_size = 32", "batch_size = 0", r"own.toml, \[recipe\]: batch_size must be positive, got 0"),
        (
            "kl = { weight = 0.01 }",
            "kll = 0.01",
            r"own.toml, \[options.vir\]: unknown option 'kll'; did you mean 'kl'",
        ),
        (
            "kl = { weight = 0.01 }",
            "weights.powr = 1",
            r"\[options.vir\]: .* has no option 'powr'; did you mean",
        ),
        ("kl = { weight = 0.01 }", "kl = 0.01", "kl takes a name or a mapping of its options, not 0.01"),
        ("kl = { weight = 0.01 }", "epochs = -1", r"\[options.vir\]: epochs must be positive"),
        ('["vanilla", "vir"]', '"vanilla,vir"', r"methods must be a list, each a string, got 'vanilla,vir'"),
        ('["vanilla", "vir"]', "[]", "`methods` is empty"),
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
        (
            "[options.vir]\nkl = { weight = 0.01 }",
            "[options]\nvir = 3",
            r"\[options\]: vir must be a table, got 3",
        ),
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
    assert run_bench(["suite", str(path), *places]) == 0
    assert sorted(p.name for p in Path("out").iterdir()) == ["own.csv", "own.md", "results.jsonl"]
    assert {r["suite"] for r in read_results(Path("out/results.jsonl"))} == {"own"}
    # The same file by another path, and from what was prepared for it, in another folder.
    assert run_bench(["suite", "configurations/own.toml", *places]) == 0
    assert len(read_results(Path("out/results.jsonl"))) == 2
    monkeypatch.chdir(folder)
    run = ["run", "--prepared", "../work/own", "--out", "../out/results.jsonl", "--seeds", "1"]
    assert run_bench([*run, "--methods", "lds"]) == 0


OTHERS = [
    ("batch_size = 32", "batch_size = 32\nlr = 0.5", "has runs with lr = 0.001, not 0.5"),
    ("batch_size = 32", 'batch_size = 32\nprecision = "bf16"', "has runs with precision = fp32"),
    (
        "weight = 0.01",
        "weight = 0.5",
        "runs of vir with {'kl': {'weight': 0.01}}, not {'kl': {'weight': 0.5}}",
    ),
    ("[options.vir]", "[options.vanilla]", "runs of vanilla with {}, not {'kl': {'weight': 0.01}}"),
]


def test_results_of_another_recipe_are_refused(
    stsb: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _write(tmp_path / "own.toml", SMALL)
    command = ["suite", str(path), "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    assert run_bench(command) == 0
    for old, new, message in OTHERS:
        _write(path, SMALL.replace(old, new, 1))
        for seeds in ("1", "2"):  # nothing is left to run, or something
            assert run_bench([*command, "--seeds", seeds]) == 1
            assert message in capsys.readouterr().err


def test_what_a_page_of_pairs_says_about_its_runs(stsb: Path, tmp_path: Path) -> None:
    path = _write(tmp_path / "own.toml", SMALL)
    out = tmp_path / "out"
    assert run_bench(["suite", str(path), "--out", str(out), "--work", str(tmp_path / "work")]) == 0
    page = (out / "own.md").read_text(encoding="utf-8")
    assert "2 contenders on 1 data set with seed 0: 2 of 2 runs." in page
    assert (
        "The data set comes with its own training, validation and test parts." in page
        and "balanced over label bins" not in page
    )
    assert "Early stopping uses the mse of the validation part. Nothing is tuned." in page
    assert "lr 0.001" in page and "rank of 2 contenders over 1 data set;" in page


def test_no_page_is_written_where_every_run_failed(
    stsb: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = SMALL.replace('["vanilla", "vir"]', '["smogn"]').partition("[options.vir]")[0]
    path = _write(tmp_path / "own.toml", text)  # a method for tables, which pairs of sentences are not
    assert (
        run_bench(["suite", str(path), "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]) == 1
    )
    assert "0 runs in" in capsys.readouterr().err
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["results.jsonl"]
