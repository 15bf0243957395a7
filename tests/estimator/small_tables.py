"""Small tables, and a `TailRegressor` that trains on them in a moment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tailwise import TailRegressor

Array = NDArray[np.float64]


def quick(**params: Any) -> TailRegressor:
    """One network without a base, trained for a few epochs, unless told otherwise."""
    return TailRegressor(**{"base": None, "folds": 1, "epochs": 3, "random_state": 0, **params})


def table(rows: int = 200, seed: int = 0) -> tuple[Array, Array]:
    """Numbers with labels of a long tail."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    return x, np.exp(x[:, 0]) + 0.3 * x[:, 1] + 0.1 * rng.normal(size=rows)


def frame(rows: int = 200) -> tuple[pd.DataFrame, pd.Series]:
    """Numbers, categories, text, flags, dates and missing values, with names and an index."""
    rng = np.random.default_rng(1)
    kind = rng.choice(["a", "b", "c"], rows)
    number = rng.normal(size=rows)
    data = pd.DataFrame(
        {
            "number": np.where(rng.random(rows) < 0.1, np.nan, number),
            "kind": pd.Categorical(kind),
            "text": np.where(rng.random(rows) < 0.1, None, kind),
            "flag": rng.random(rows) < 0.5,
            "day": pd.date_range("2024-01-01", periods=rows, freq="h"),
            "empty": np.nan,
            "same": 1.0,
        },
        index=[f"row{i}" for i in range(rows)],
    )
    return data, pd.Series(np.exp(number) + (kind == "a"), index=data.index, name="price")
