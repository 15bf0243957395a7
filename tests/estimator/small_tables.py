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
    """Columns of every kind, with missing values, names and an index."""
    rng = np.random.default_rng(1)
    kind, size = rng.choice(["oak", "elm", "ash"], rows, p=[0.6, 0.3, 0.1]), rng.normal(size=rows)
    words = np.array(["tall", "old", "green", "by the river", "cut", "with a nest"])
    notes = [" ".join(rng.choice(words, 4)) + f" no. {k}" for k in range(rows)]
    table = pd.DataFrame(
        {
            "size": np.where(rng.random(rows) < 0.1, np.nan, size),
            "count": rng.integers(0, 9, rows),
            "kind": pd.Categorical(kind),
            "place": np.where(rng.random(rows) < 0.1, None, rng.choice(["north", "south"], rows)),
            "note": np.where(rng.random(rows) < 0.1, None, notes),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, rows), "D"),
            "felled": rng.random(rows) < 0.5,
            "empty": np.nan,
            "same": 1.0,
        },
        index=[f"row{k}" for k in range(rows)],
    )
    labels = np.exp(size) + (kind == "oak") + 0.1 * rng.normal(size=rows)
    return table, pd.Series(labels, index=table.index, name="price")
