"""Tables for saved models, and files that were damaged or forged."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tailwise import TailRegressor
from tailwise.files.archive import VERSION


def numbers(n: int = 240, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4))
    y = np.exp(x[:, 0]) + 0.1 * rng.normal(size=n)
    x[rng.random(x.shape) < 0.05] = np.nan
    return x, y


def mixed(n: int = 240) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(1)
    x = pd.DataFrame(
        {
            "number": rng.normal(size=n),
            "whole": pd.array(rng.integers(0, 9, n), dtype="Int64"),
            "flag": rng.random(n) > 0.5,
            "kind": pd.Categorical(rng.choice(["a", "b", "c"], n)),
            "word": rng.choice(["red", "green", None], n),
            "text": [f"item {i} of shelf {i % 7}" for i in rng.integers(0, 500, n)],
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 400, n), "D"),
            "hour": pd.Timestamp("2024-01-01", tz="Europe/Paris")
            + pd.to_timedelta(rng.integers(0, 4000, n), "h"),
        },
        index=np.arange(n) + 7,
    )
    return x, np.exp(x["number"].to_numpy()) + (x["kind"] == "a")


def assert_same_predictions(one: TailRegressor, two: TailRegressor, x: Any) -> None:
    for a, b in zip(one.predict(x, return_std=True), two.predict(x, return_std=True), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.predict_interval(x, 0.8), two.predict_interval(x, 0.8))
    assert one.explain_intervals() == two.explain_intervals()
    np.testing.assert_array_equal(one.predict_quantiles(x, [0.1, 0.8]), two.predict_quantiles(x, [0.1, 0.8]))
    pd.testing.assert_frame_equal(one.predict_frame(x), two.predict_frame(x), check_exact=True)


def parts_of(path: Path) -> tuple[dict[str, Any], bytes]:
    """The model of a file as JSON, and its weights."""
    text, _, weights = path.read_bytes().split(b"\n", 3)[3].partition(b"\n")
    return json.loads(text), weights


def written(path: Path, model: Any, weights: bytes) -> Path:
    """A file of a model with a checksum that matches, as a forger would write it."""
    content = json.dumps(model).encode() + b"\n" + weights
    first = f"tailwise model {VERSION} 0\n{hashlib.sha256(content).hexdigest()}\n-\n"
    path.write_bytes(first.encode() + content)
    return path


def changed(model: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A model with another value at a place."""
    model = copy.deepcopy(model)
    parent = model
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = value
    return model


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if not (isinstance(key, int) and key > 1):  # the first two of a list stand for all
            yield from leaves(item, (*path, key))
