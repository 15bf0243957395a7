"""Fitted models that the tests of the estimator share. No test may change them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailwise import TailRegressor
from tailwise.model import base as bases
from tests.estimator.saved_files import mixed, numbers
from tests.estimator.small_tables import quick, table


@pytest.fixture
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let boosted bases have 10 trees instead of 1,000."""
    monkeypatch.setattr(bases, "TREES", 10)


@pytest.fixture(scope="session")
def plain() -> TailRegressor:
    """VIR without a base and without emphasis, on 600 rows of `table`."""
    return quick(method="vir", emphasis=0.0, epochs=3).fit(*table(600))


@pytest.fixture(scope="session")
def boosted() -> TailRegressor:
    """Three networks around CatBoost with 10 trees, on 200 rows of `table`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bases, "TREES", 10)
        return quick(base="catboost", folds=3).fit(*table())


@pytest.fixture(scope="session")
def simple() -> TailRegressor:
    """VIR without a base, on `numbers`."""
    return quick(method="vir", epochs=1).fit(*numbers())


@pytest.fixture(scope="session")
def saved(simple: TailRegressor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simple.save(tmp_path_factory.mktemp("saved") / "model.tailwise")


@pytest.fixture(scope="session")
def saved_mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the table `mixed`, with text, categories and dates."""
    return quick(epochs=1).fit(*mixed()).save(tmp_path_factory.mktemp("mixed") / "model.tailwise")


@pytest.fixture(scope="session")
def saved_boosted(boosted: TailRegressor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return boosted.save(tmp_path_factory.mktemp("boosted") / "model.tailwise")
