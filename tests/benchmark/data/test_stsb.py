"""STS-B-DIR as problems of words and of vectors, and networks for both."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tailwise.benchmark.data.problems import Problem
from tailwise.benchmark.data.stsb import DATA, NETWORKS


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


def test_data_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAILWISE_DATA", raising=False)
    with pytest.raises(ValueError, match="set the environment variable TAILWISE_DATA"):
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
