"""Tables that tests of resampling share, and a plain distance between their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[np.float64]


def two_runs(normal: int, rare: int, columns: int = 3, seed: int = 0) -> tuple[Array, Array]:
    """Rows with label 0 and, at most a quarter, rows with labels from 20 to 24, all rare, in random order."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.concatenate([np.zeros(normal), rng.uniform(20, 24, rare)]))
    return rng.normal(size=(y.size, columns)) * 10.0 ** np.arange(columns), y


def mixed(rows: int, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """A table of numbers, counts, text, categories and flags; labels are 0 or, if rare, 20 to 24."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=rows),
            "count": rng.integers(0, 50, rows),
            "name": rng.choice(["a", "b", "c"], rows).astype(object),
            "kind": pd.Categorical(rng.choice(["x", "y"], rows), categories=["x", "y", "z"]),
            "flag": rng.random(rows) < 0.5,
            "width": rng.normal(size=rows).astype(np.float32),
        },
        index=rng.permutation(rows) + 1000,
    )
    y = np.where(rng.random(rows) < 0.15, rng.uniform(20, 24, rows), 0.0)
    return frame, pd.Series(y, index=frame.index, name="target")


def heom(X: Any) -> Array:
    """Distances of all pairs of rows: numbers by their range, one for two categories that differ."""
    frame = pd.DataFrame(X)
    total = np.zeros((len(frame), len(frame)))
    for name in frame:
        values = frame[name].to_numpy()
        if values.dtype.kind in "if":
            reach = values.max() - values.min()
            total += (np.subtract.outer(values, values) / reach) ** 2 if reach > 0 else 0.0
        else:
            total += np.not_equal.outer(values, values)
    return np.asarray(np.sqrt(total))


def kinds(rows: int = 120) -> pd.DataFrame:
    """Columns of every type, and texts that are numbers, dates or missing."""
    rng = np.random.default_rng(2)
    days = pd.Timestamp("2020-03-01") + pd.to_timedelta(rng.integers(0, 900, rows), "D")
    words = np.array(["tall", "old", "green", "by the river", "cut", "with a nest"])
    return pd.DataFrame(
        {
            "whole": pd.array(np.where(rng.random(rows) < 0.1, None, rng.integers(9, size=rows)), "Int64"),
            "huge": np.where(np.arange(rows) == 3, 1e30, rng.normal(size=rows)),
            "flag": pd.array(np.where(rng.random(rows) < 0.1, None, rng.random(rows) < 0.5), "boolean"),
            "code": pd.Categorical(rng.integers(0, 5, rows)),
            "price": np.where(rng.random(rows) < 0.2, "N/A", rng.normal(size=rows).round(3).astype(str)),
            "mixed": pd.Series(rng.choice(["a", 3, None, 2.5], rows), dtype=object),
            "blank": rng.choice(["a", "b", "", "?", "NA", "  "], rows),
            "day": days,
            "hour": days + pd.to_timedelta(rng.integers(0, 24, rows), "h"),
            "zone": (days + pd.to_timedelta(7, "h")).tz_localize("Europe/Paris"),
            "written": days.strftime("%d/%m/%Y"),
            "wait": pd.to_timedelta(rng.integers(0, 9_000_000, rows), "s"),
            "note": [" ".join(rng.choice(words, 4)) + f" no. {k}" for k in range(rows)],
            "many": [f"v{k % 60}" for k in range(rows)],
            "empty": pd.Series([None] * rows, dtype=object),
            "same": "same",
        }
    )
