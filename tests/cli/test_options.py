"""Options as text and as TOML: what they mean, and what is wrong with them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tailwise import TailRegressor
from tailwise.cli.options import parse_bins, parse_method_options
from tests.cli.conftest import FAST
from tests.plugin_samples import forgotten, write_plugin

Run = Callable[..., Any]


def test_bins_are_a_number_or_edges() -> None:
    assert parse_bins(None) is None
    assert parse_bins("7") == 7
    assert parse_bins("-1, 0.5,2,20") == [-1, 0.5, 2, 20]


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
def test_wrong_bins(given: str, words: str) -> None:
    with pytest.raises(ValueError) as raised:
        parse_bins(given)
    assert words in str(raised.value)


def test_options_of_methods_have_values_of_their_own_type() -> None:
    pairs = ["a=0.5", "b=True", "c=none", "d=word", "e.f=[1, 2]"]
    assert parse_method_options(pairs) == {"a": 0.5, "b": True, "c": None, "d": "word", "e.f": [1, 2]}
    assert parse_method_options([]) is None
    for wrong in ("what", "=1"):
        with pytest.raises(ValueError, match="NAME=VALUE"):
            parse_method_options([wrong])


# -- TOML ----------------------------------------------------------------------------------------


def test_a_configuration_file_gives_defaults_that_flags_override(
    run: Run, place: Path, tmp_path: Path, fits: list[Any]
) -> None:
    config = tmp_path / "fit.toml"
    config.write_text(
        'target = "price"\nmethod = "lds"\nepochs = 1\ndrop = ["z"]\nquiet = true\nbins = [-1, 0.5, 2, 20]\n'
        '[option]\n"weights.power" = 0.7\n'
    )
    line = ["fit", place / "houses.csv", "--config", config, "-o", tmp_path / "m"]
    run(*line)
    model = fits[0].model
    assert (model.method, model.epochs, model.method_options) == ("lds", 1, {"weights.power": 0.7})
    assert (model.bins, model.verbose) == ([-1, 0.5, 2, 20], 0)
    assert list(fits[0].X.columns) == ["x", "kind"] and fits[0].y.name == "price"
    config.write_text('target = ["price", "x"]\nbins = 7\n')
    run(*line)
    assert list(fits[1].y.columns) == ["price", "x"] and fits[1].model.bins == 7
    config.write_text('target = "price"\nmethod = "lds"\n[option]\n"weights.power" = 0.7\n')
    run(*line, "--method", "vanilla", "--option", "squared.weight=2")
    assert (fits[2].model.method, fits[2].model.method_options) == ("vanilla", {"squared.weight": 2})


def test_json_and_no_test_rows_from_a_configuration_file(run: Run, place: Path, tmp_path: Path) -> None:
    config = tmp_path / "fit.toml"
    config.write_text(
        'target = "price"\nmethod = "vanilla"\nepochs = 1\nquiet = true\njson = true\ntest-share = 0\n'
        'folds = 1\nbase = "none"\n'
    )
    out = run("fit", place / "numbers.csv", "--config", config, "-o", tmp_path / "m")
    assert out.exit_code == 0, out.output
    printed = json.loads(out.stdout)
    assert printed["model"] == str(tmp_path / "m") and printed["verdict"] is None
    assert int(TailRegressor.load(tmp_path / "m").bins_.counts.sum()) <= 200


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'methd = "vir"\n', "unknown key 'methd'; did you mean 'method'?"),
        (b"epochs = [\n", "not valid TOML"),
        (b"method = '\xff'\n", "not UTF-8 text"),
        (None, "c.toml"),
    ],
)
def test_a_wrong_configuration_file(
    run: Run, place: Path, tmp_path: Path, content: bytes | None, words: str
) -> None:
    config = tmp_path / "c.toml"
    if content is not None:
        config.write_bytes(content)
    out = run("fit", place / "numbers.csv", "-t", "price", "-o", tmp_path / "m", "--config", config)
    assert out.exit_code == 1 and words in out.stderr


def test_a_method_of_a_plugin_is_trained_saved_and_read(run: Run, place: Path, tmp_path: Path) -> None:
    plugin, model = write_plugin(tmp_path), tmp_path / "m"
    fit = ["fit", place / "numbers.csv", "-t", "price", "-o", model, "--method", "huber", *FAST]
    out = run(*fit)
    assert out.exit_code == 1 and "unknown method 'huber'" in out.stderr
    assert "(--plugin FILE adds a method of your own)" in out.stderr
    with forgotten():
        out = run(*fit, "--plugin", plugin, "--ray", "auto")
        assert out.exit_code == 1 and "do not run a --plugin: leave out --ray" in out.stderr
        out = run(*fit, "--plugin", plugin)
        assert out.exit_code == 0, out.output
    predict = ["predict", model, place / "new.csv", "-o", tmp_path / "p.csv"]
    out = run(*predict)
    assert out.exit_code == 1
    assert "import the file that registers the method 'huber' first, with --plugin FILE" in out.stderr
    settings = tmp_path / "settings.toml"
    settings.write_text(f"plugin = '{plugin}'\n", encoding="utf-8")
    for told in (["--plugin", plugin], ["--config", settings, "--force"]):
        with forgotten():
            out = run(*predict, *told)
            assert out.exit_code == 0, out.output


@pytest.mark.parametrize(
    "command",
    ["fit t -t y -o m", "predict m t -o p.csv", "evaluate m t", "explain m t -o p.csv", "export m",
     "recalibrate m t -o n", "serve m", "card m -o c.md", "compare t -t y"],
)  # fmt: skip
def test_a_plugin_that_fails_is_wrong_usage(
    run: Run, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = run(*command.split(), "--plugin", "gone.py")
    assert out.exit_code == 2 and "gone.py does not exist" in " ".join(out.stderr.split()), out.output
    assert list(tmp_path.iterdir()) == []
