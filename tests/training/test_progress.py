"""The lines of training."""

from __future__ import annotations

import logging

import pytest

from tailwise.training import progress
from tailwise.training.loop import fit
from tailwise.training.progress import visible
from tests.training.small_models import VALID, X, Y, point, settings


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "tailwise.training.loop"]


def test_a_line_has_the_loss_and_the_score(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="tailwise"):
        first = fit(point(), (X, Y), VALID, settings()).history[0]
    score = f"balanced mae {first['balanced_mae']:.4g} (best: 1)"
    assert lines_of(caplog)[0] == f"epoch 1/3  loss {first['loss']:.4g}  {score}"


def test_a_long_training_has_a_line_for_each_tenth(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="tailwise"):
        fit(point(), (X, Y), None, settings(epochs=25))
    epochs = [int(line.split("/")[0].removeprefix("epoch ")) for line in lines_of(caplog)]
    assert epochs == [1, 3, 5, 8, 10, 13, 15, 18, 20, 23, 25]


def test_lines_are_visible_where_no_logging_is_set_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN", 3600.0)  # the machine may be slow
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
