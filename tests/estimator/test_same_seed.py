"""The same seed gives the same model: in threads, by any number of threads, from pandas and from polars."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Lock
from typing import Any

import numpy as np
import polars
import pytest
import torch

from tailwise.model import base as bases
from tailwise.training.loop import fit as train
from tests.estimator.small_tables import quick, table
from tests.table_samples import kinds


def test_fits_in_threads_equal_fits_one_by_one() -> None:
    x, y = table(80)

    def fitted(seed: int) -> np.ndarray:
        return np.asarray(quick(random_state=seed, epochs=1, emphasis=0.5).fit(x, y).predict(x))

    torch.manual_seed(3)
    before = torch.get_rng_state()
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(fitted, range(3)))
    assert torch.equal(torch.get_rng_state(), before) and torch.get_num_threads() == 2
    torch.set_num_threads(threads)
    np.testing.assert_array_equal(together, [fitted(seed) for seed in range(3)])


@pytest.mark.parametrize("folds", [1, 3])
def test_any_number_of_threads_gives_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folds: int
) -> None:
    monkeypatch.setattr(bases, "TREES", 20)
    x, y = table(120)
    found, threads = [], torch.get_num_threads()
    for count in (1, 4):
        torch.set_num_threads(count)
        model = quick(base="catboost", epochs=1, folds=folds).fit(x, y)
        assert torch.get_num_threads() == count
        model.save(tmp_path / "model.tailwise", overwrite=True)
        found.append((tmp_path / "model.tailwise").read_bytes())
    torch.set_num_threads(threads)
    assert found[0] == found[1]


def test_an_error_in_one_network_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks train side by side: after an error, as after Ctrl-C, the others end with their epoch."""
    x, y = table(80)
    begun, epochs = Barrier(2), []

    def learn(
        network: object, *_: object, title: str, on_epoch: Callable[..., None], **options: object
    ) -> None:
        begun.wait(10)
        if title.startswith("network 1"):
            raise ValueError("the first one fails")
        for epoch in range(6000):
            epochs.append(epoch)
            on_epoch({}, epoch)
            time.sleep(0.01)

    monkeypatch.setattr("tailwise.model.training.train", learn)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    with pytest.raises(ValueError, match="the first one fails"):
        quick(folds=2).fit(x, y)
    torch.set_num_threads(threads)
    assert len(epochs) < 6000


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tailwise.training.loop._SMALL_NETWORK", 0),
        ("tailwise.networks.network.Network.draws_its_own", False),
        ("tailwise.model.training.rank_and_ranks", lambda: (0, 2)),
    ],
)
def test_networks_that_share_something_take_turns(
    monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    """They share all threads, torch's one generator, or the connection to other processes."""
    x, y = table(80)
    busy = Lock()

    def learn(*args: Any, **options: Any) -> Any:
        assert busy.acquire(blocking=False), "two networks train at once"
        time.sleep(0.02)
        result = train(*args, **options)
        busy.release()
        return result

    monkeypatch.setattr(name, value)
    monkeypatch.setattr("tailwise.model.training.train", learn)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    quick(folds=2, epochs=1).fit(x, y)
    torch.set_num_threads(threads)


def test_pandas_polars_and_pyarrow_give_the_same_model() -> None:
    x = kinds(60).drop(columns=["mixed", "code"])
    y = np.random.default_rng(0).lognormal(size=60)
    table = polars.from_pandas(x).with_columns(polars.col("blank").cast(polars.Categorical))
    expected = quick(epochs=1).fit(x, y).predict(x)
    for rows in (table, x.convert_dtypes(dtype_backend="pyarrow")):
        np.testing.assert_array_equal(quick(epochs=1).fit(rows, y).predict(rows), expected)
    model = quick(epochs=1).fit(table, y)
    assert list(model.feature_names_in_) == table.columns
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table.rename({"blank": "blanc"}))
