"""The commands about models in use."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pytest

Run = Callable[..., Any]


def test_a_card_with_a_test(run: Run, place: Path, tmp_path: Path) -> None:
    printed = run("evaluate", place / "m.tailwise", place / "new.csv", "--json")
    (tmp_path / "test.json").write_text(printed.stdout, encoding="utf-8")
    out = run("card", place / "m.tailwise", "-o", tmp_path / "card.md", "--report", tmp_path / "test.json")
    assert out.exit_code == 0, out.output
    card = (tmp_path / "card.md").read_text(encoding="utf-8")
    figures = json.loads(printed.stdout)
    assert figures["verdict"]["headline"] in card and "| this model | all | 150 |" in card
    assert "| base | CatBoostRegressor |" in card
    (tmp_path / "other.json").write_text('{"a": 1}')
    for other in (place / "new.csv", tmp_path / "other.json"):
        wrong = run("card", place / "m.tailwise", "-o", tmp_path / "no.md", "--report", other)
        words = f"{other} is not the output of `tailwise evaluate --json`"
        assert wrong.exit_code == 1 and words in wrong.stderr
    again = run("card", place / "n.tailwise", "-o", tmp_path / "card.md")
    assert again.exit_code == 1 and "already exists" in again.stderr


def test_serving_needs_a_model_that_is_signed_if_a_key_is_given(
    run: Run, place: Path, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("0123456789abcdef0123", encoding="utf-8")
    out = run("serve", place / "n.tailwise", "--verify", tmp_path / "key")
    assert out.exit_code == 1 and "is not signed" in out.stderr
    out = run("serve", tmp_path / "none", "--port", 0)
    assert out.exit_code == 1 and "does not exist" in out.stderr


def test_serve_stops_with_code_0(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import uvicorn

    def stopped(server: uvicorn.Server, sockets: list[Any]) -> None:
        assert sockets[0].getsockname()[1] > 0
        raise KeyboardInterrupt

    monkeypatch.setattr(uvicorn.Server, "run", stopped)
    out = run("serve", place / "n.tailwise", "--port", 0, "--max-waiting", 3)
    assert out.exit_code == 0 and re.search(r"serving .*n.tailwise on http://127.0.0.1:\d+", out.stderr)
    assert "stopped after 0 answers" in out.stderr


@pytest.mark.slow
def test_a_server_answers_and_stops_on_sigterm(program: Any, place: Path) -> None:
    process = program.start("serve", place / "n.tailwise", "--port", 0)
    try:
        line = process.stderr.readline()
        address = re.search(r"http://127.0.0.1:\d+", line)
        assert address is not None, line
        rows = pd.read_csv(place / "new.csv").drop(columns="price")[:3].to_dict(orient="records")
        answer = httpx.post(f"{address[0]}/predict", json={"rows": rows}, timeout=60)
        assert answer.status_code == 200 and len(answer.json()["predictions"]) == 3
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    assert process.returncode == 0 and "stopped after 1 answers" in said and "Traceback" not in said
