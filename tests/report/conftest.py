"""Two tiny fitted models, scored on the same test rows, and what a page says about them."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from tailwise import TailRegressor
from tailwise.methods import get_method
from tailwise.report.page import Facts, model_page
from tailwise.report.scoring import Scored, score_base, score_model
from tailwise.report.verdict import judge

Rows = tuple[pd.DataFrame, np.ndarray]


def make_rows(count: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 3))
    y = np.round(2 * np.exp(x[:, 0]) + 0.3 * rng.normal(size=count))
    return pd.DataFrame(x, columns=["a", "b", "c"]), y


@pytest.fixture(scope="session")
def new_rows() -> Rows:
    """Test rows, inputs and labels."""
    return make_rows(300, seed=1)


@pytest.fixture(scope="session")
def models() -> dict[str, TailRegressor]:
    return {
        method: TailRegressor(method=method, epochs=3, random_state=0).fit(*make_rows(700, seed=0))
        for method in ("vir", "vanilla")
    }


@pytest.fixture(scope="session")
def vir(models: dict[str, TailRegressor], new_rows: Rows) -> Scored:
    return score_model(models["vir"], *new_rows)


@pytest.fixture(scope="session")
def vanilla(models: dict[str, TailRegressor], new_rows: Rows) -> Scored:
    return score_model(models["vanilla"], *new_rows)


@pytest.fixture(scope="session")
def catboost(models: dict[str, TailRegressor], new_rows: Rows) -> Scored:
    """The base of both models alone."""
    base = score_base(models["vir"], *new_rows)
    assert base is not None
    return base


@pytest.fixture(scope="session")
def facts(models: dict[str, TailRegressor]) -> Callable[[str], Facts]:
    """What the page about a method says besides its scores."""

    def make(method: str) -> Facts:
        return Facts(
            target="rings & <things>",
            source="shells.csv",
            method=method,
            train_rows=560,
            features=3,
            command=f"tailwise fit shells.csv --target 'rings & <things>' --report {'long_' * 20}.html",
            parts=get_method(method).parts,
            intervals=models[method].explain_intervals(),
            seed=0,
            epochs=3,
            best_epoch=2,
            settings={"batch_size": 64, "lr": None},
        )

    return make


@pytest.fixture(scope="session")
def page(vir: Scored, vanilla: Scored, catboost: Scored, facts: Callable[[str], Facts]) -> str:
    """The page about VIR beside Vanilla and the base alone."""
    return model_page(vir, judge(vir, vanilla), facts("vir"), vanilla, catboost)
