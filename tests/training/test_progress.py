"""The lines of training."""

from __future__ import annotations

import logging

import pytest

from tailwise.training import loop
from tailwise.training.loop import visible


def test_lines_are_visible_where_no_logging_is_set_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loop, "_SECONDS_BETWEEN", 3600.0)  # the machine may be slow
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
