"""Families: networks around a base and networks without it, pooled by what held-out rows say."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression

from tailwise import TailRegressor
from tailwise.distributions.members import Normal
from tailwise.distributions.transform import Identity
from tailwise.model import families
from tailwise.model.families import share_alone
from tailwise.networks.together import Pool

X = np.random.default_rng(0).normal(size=(120, 3))
Y = X[:, 0] + np.sin(3 * X[:, 1])
TREES = HistGradientBoostingRegressor(max_iter=4)


def fitted(y: Any = Y, **parameters: Any) -> TailRegressor:
    settings = {"base": LinearRegression(), "backbone": "mlp", "folds": 2, "epochs": 1, "random_state": 0}
    return TailRegressor(**{**settings, "pool": True, **parameters}).fit(X, y)


def test_the_share_is_the_smallest_within_one_error_of_the_lowest_crps() -> None:
    y = np.random.default_rng(1).normal(size=500)
    exact, zero = Normal(torch.from_numpy(y), 0.01), Normal(torch.zeros(500, dtype=torch.float64), 1.0)
    assert share_alone(exact, zero, y, Identity()) == 0 and share_alone(zero, exact, y, Identity()) == 1
    first, second = (y + np.random.default_rng(seed).normal(size=500) for seed in (2, 3))
    families = [Normal(torch.from_numpy(mean), 1.0) for mean in (first, second)]
    assert 0.3 < share_alone(*families, y, Identity()) < 0.6
    assert share_alone(*(families[0], families[0]), y, Identity()) == 0  # equals do not need each other


def test_tables_of_copies_are_not_pooled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "share_alone", lambda *_: 0.5)
    for copies, networks in ((60, 4), (61, 2)):
        rows = np.r_[np.arange(60), np.zeros(copies, np.int64)]
        model = TailRegressor(base=TREES, folds=2, epochs=1, pool=True, random_state=0).fit(X[rows], Y[rows])
        assert len(model.histories_) == networks


def test_a_pool_lies_between_its_families_and_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    y, predictions = np.stack([Y, -2 * Y + X[:, 2]], axis=1), {}
    for share in (0.0, 0.25, 1.0):
        monkeypatch.setattr(families, "share_alone", lambda *_, share=share: share)
        model = fitted(y, base=TREES, emphasis=0.0)
        predictions[share] = model.predict(X)
        assert model.model_.base.is_identity == (share == 1)
        assert len(model.histories_) == (4 if share == 0.25 else 2)
        loaded = TailRegressor.load(model.save(tmp_path / f"{share}.tailwise"))
        np.testing.assert_array_equal(loaded.predict(X), predictions[share])
        np.testing.assert_array_equal(loaded.predict_interval(X), model.predict_interval(X))
        if share == 0.25:
            assert all(isinstance(network, Pool) for network in model.networks_)
            more = fitted(y, base=TREES)
            assert np.isfinite(more.fit(X, y, init_model=model).predict(X)).all()
    np.testing.assert_allclose(
        predictions[0.25], 0.75 * predictions[0.0] + 0.25 * predictions[1.0], rtol=1e-6
    )
    alone = fitted(y, base=TREES, emphasis=0.0, pool=False)
    np.testing.assert_array_equal(alone.predict(X), predictions[0.0])
