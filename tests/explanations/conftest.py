"""A small table with numbers, a category, dates and text, and a model of it."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression

from tailwise import TailRegressor
from tailwise.model import base as bases

Array = NDArray[np.float64]
Rows = tuple[pd.DataFrame, Array]


def make_rows(count: int, seed: int) -> Rows:
    """Labels that depend on size, kind and words of the text, and not on dates or on junk."""
    rng = np.random.default_rng(seed)
    things = rng.choice(["oak chair", "steel lamp", "pine desk", "brass bed"], count)
    table = pd.DataFrame(
        {
            "size": rng.normal(size=count),
            "kind": rng.choice(["a", "b", "c"], count),
            "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, count), "D"),
            "text": [f"{thing} number {rng.integers(99)}" for thing in things],
            "junk": rng.integers(0, 9, count),
        }
    )
    oak = table["text"].str.contains("oak").to_numpy()
    y = 3 * np.exp(table["size"]) + 4 * (table["kind"] == "a") + 3 * oak
    return table, (y + 0.1 * rng.normal(size=count)).to_numpy()


@pytest.fixture(scope="session")
def rows() -> Rows:
    """Test rows, inputs and labels."""
    return make_rows(120, seed=1)


@pytest.fixture(scope="session", autouse=True)
def few_trees() -> Iterator[None]:
    """Boosted trees that are fitted quickly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bases, "TREES", 40)
        yield


@pytest.fixture(scope="session")
def model() -> TailRegressor:
    """Trees and one network, with the dial turned up."""
    training = {"folds": 1, "epochs": 4, "batch_size": 128, "lr": 3e-3}
    return TailRegressor(emphasis=0.5, random_state=0, **training).fit(*make_rows(400, seed=0))


def linear(x: Any, y: Any) -> TailRegressor:
    """A model that predicts what least squares does, for its network is not trained."""
    return TailRegressor(
        base=LinearRegression(), folds=1, epochs=1, lr=1e-12, emphasis=0.0, random_state=0
    ).fit(x, y)


@pytest.fixture(scope="session")
def twins() -> tuple[TailRegressor, np.ndarray]:
    """A linear model of an array with two targets, and its rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3))
    y = pd.DataFrame({"first": x[:, 0] + 0.1 * x[:, 2], "second": x[:, 1]})
    return linear(x, y + 0.01 * rng.normal(size=y.shape)), x
