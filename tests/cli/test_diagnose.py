"""`tailwise diagnose`: words, numbers and a picture."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tailwise import TailRegressor

Run = Callable[..., Any]
Sample = Callable[..., pd.DataFrame]
ONE = ["--folds", "1", "--base", "none"]


def test_words_and_a_picture(run: Run, place: Path, tmp_path: Path) -> None:
    out = run("diagnose", place / "houses.csv", "--target", "price", "--plot", tmp_path / "p.png")
    assert out.exit_code == 0 and "Verdict:" in out.stdout
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    out = run("diagnose", place / "houses.csv", "--target", "price", "--plot", tmp_path / "p.xyz")
    assert out.exit_code == 1 and ".png, .svg or .pdf" in out.stderr


def test_a_file_of_labels_alone(run: Run, tmp_path: Path) -> None:
    only = tmp_path / "only.csv"
    only.write_text("y\n" + "\n".join(map(str, range(200))) + "\n")
    assert json.loads(run("diagnose", only, "-t", "y", "--json").stdout)["n"] == 200


def test_fit_takes_the_edges_that_diagnose_prints(run: Run, sample: Sample, tmp_path: Path) -> None:
    table = sample(400).assign(price=lambda t: (3 * t["x"] + t["z"]).map(math.exp))
    table.to_csv(tmp_path / "skewed.csv", index=False)
    out = run("diagnose", tmp_path / "skewed.csv", "-t", "price")
    advised = re.search(r"--bins ([\d.e+-]+(?:,[\d.e+-]+)+)", out.stdout)
    assert advised is not None, out.stdout
    line = ["fit", tmp_path / "skewed.csv", "-t", "price", "-o", tmp_path / "m", "--epochs", 1, *ONE]
    out = run(*line, "--bins", advised[1])
    assert out.exit_code == 0, out.output
    bins = TailRegressor.load(tmp_path / "m").bins_
    assert len(bins) == 20 and bins.counts.max() < 0.5 * bins.counts.sum()


def test_an_unforeseen_error_is_one_line_too(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tailwise.report.diagnosis

    def broken(*_: object, **__: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(tailwise.report.diagnosis, "diagnose", broken)
    out = run("diagnose", place / "houses.csv", "-t", "price")
    assert out.exit_code == 1 and "unexpected KeyError" in out.stderr and "TAILWISE_DEBUG" in out.stderr
    monkeypatch.setenv("TAILWISE_DEBUG", "1")
    assert isinstance(run("diagnose", place / "houses.csv", "-t", "price").exception, KeyError)


def test_doctor_names_versions_and_extras(run: Run) -> None:
    facts = json.loads(run("doctor", "--json").stdout)
    assert facts["packages"]["numpy"] and facts["devices"][0] == "cpu" and facts["threads"] >= 1
    assert set(facts["extras"].get("serve", {})) <= {"fastapi", "pydantic", "uvicorn", "prometheus-client"}
    assert "numpy" in run("doctor").stdout
