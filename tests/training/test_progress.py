"""Progress: a bar on a terminal, log lines elsewhere."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from tailwise.training import progress as progress_lines
from tailwise.training.loop import fit
from tailwise.training.progress import visible
from tests.training.small_models import (
    VALID,
    X,
    Y,
    point,
    settings,
)


def forced_console(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Make rich believe in a terminal that is a string."""
    import rich.console

    screen, real = io.StringIO(), rich.console.Console
    monkeypatch.setattr(
        rich.console, "Console", lambda **_: real(file=screen, force_terminal=True, width=150)
    )
    return screen


@pytest.mark.parametrize("progress", [None, True])
def test_a_terminal_gets_a_bar_with_the_balanced_error(
    progress: bool | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    screen = forced_console(monkeypatch)
    with caplog.at_level(logging.INFO, logger="tailwise"):
        result = fit(point(), (X, Y), VALID, settings(), progress=progress)
    text = screen.getvalue()
    assert "epoch 3/3" in text
    assert f"balanced mae {result.history[-1]['balanced_mae']:.4g} (best: {result.best_epoch})" in text
    assert not caplog.records


@pytest.mark.parametrize("how", ["no terminal", "turned off", "no rich"])
def test_elsewhere_there_are_log_lines(
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = forced_console(monkeypatch) if how == "turned off" else io.StringIO()
    if how == "no rich":
        monkeypatch.setitem(sys.modules, "rich.console", None)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    with caplog.at_level(logging.INFO, logger="tailwise"):
        result = fit(point(), (X, Y), VALID, settings(), progress=False if how == "turned off" else None)
    lines = [record.getMessage() for record in caplog.records if record.name == "tailwise.training.progress"]
    assert len(lines) == 3
    first = result.history[0]
    assert lines[0] == (
        f"epoch 1/3  loss {first['loss']:.4g}  balanced mae {first['balanced_mae']:.4g} (best: 1)"
    )
    assert screen.getvalue() == capsys.readouterr().out == ""


def test_a_long_training_has_a_line_for_each_tenth(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="tailwise"):
        fit(point(), (X, Y), None, settings(epochs=25), progress=False)
    lines = [record.getMessage() for record in caplog.records if record.name == "tailwise.training.progress"]
    assert [line.split("/")[0] for line in lines] == [
        f"epoch {epoch}" for epoch in (1, 3, 5, 8, 10, 13, 15, 18, 20, 23, 25)
    ]


def test_without_validation_data_the_line_has_no_score(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="tailwise"):
        fit(point(), (X, Y), None, settings(epochs=1), progress=False)
    assert "balanced" not in caplog.text
    assert "epoch 1/1  loss" in caplog.text


def test_lines_are_visible_where_no_logging_is_set_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_lines, "_SECONDS_BETWEEN", 3600.0)  # the machine may be slow
    ours = logging.getLogger("tailwise")
    root, before = logging.getLogger(), (ours.level, list(ours.handlers))
    others, root.handlers = root.handlers, []
    try:
        with visible():
            for text in ("one", "too soon"):
                logging.getLogger("tailwise.training").info(text)
            ours.warning("important")
    finally:
        root.handlers = others
    assert capsys.readouterr().err.splitlines() == ["one", "important"]
    assert (ours.level, ours.handlers) == before


def test_a_log_of_the_users_own_gets_every_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="tailwise"), visible():
        for text in ("one", "two"):
            logging.getLogger("tailwise.training").info(text)
    assert caplog.messages == ["one", "two"]
