"""Options as text, and plugins."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tailwise.cli.options import parse_bins
from tests.cli.conftest import FAST
from tests.plugin_samples import forgotten, write_plugin

Run = Callable[..., Any]


@pytest.mark.parametrize("given", ["0", "2.5", "0,1,1,2", "0,10,5", "0,1,", "0,ten", "0,nan", ""])
def test_wrong_bins(given: str) -> None:
    with pytest.raises(ValueError, match="a whole number of bins, or increasing edges") as raised:
        parse_bins(given)
    assert str(raised.value).endswith(f"not {given!r}")


def test_a_method_of_a_plugin_is_trained_saved_and_read(run: Run, place: Path, tmp_path: Path) -> None:
    plugin, model = write_plugin(tmp_path), tmp_path / "m"
    fit = ["fit", place / "numbers.csv", "-t", "price", "-o", model, "--method", "huber", *FAST]
    out = run(*fit)
    assert out.exit_code == 1 and "unknown method 'huber'" in out.stderr
    with forgotten():
        out = run(*fit, "--plugin", plugin, "--ray", "auto")
        assert out.exit_code == 1 and "do not run a --plugin: leave out --ray" in out.stderr
        out = run(*fit, "--plugin", plugin)
        assert out.exit_code == 0, out.output
    predict = ["predict", model, place / "new.csv", "-o", tmp_path / "p.csv"]
    out = run(*predict)
    assert out.exit_code == 1
    assert "run the plugin that registers the method 'huber' first" in out.stderr
    with forgotten():
        out = run(*predict, "--plugin", plugin)
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
