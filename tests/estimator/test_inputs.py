"""Tables and tensors of every kind, and errors that name what is wrong with them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tailwise import TailRegressor
from tests.estimator.small_tables import frame, quick, table


def test_a_table_as_users_have_it() -> None:
    data, y = frame()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = quick().fit(data, y)
        out = model.predict_frame(new := data.iloc[:5])
    assert list(out.index) == list(new.index)
    assert np.isfinite(out["prediction"]).all()
    assert list(model.feature_names_in_) == list(data.columns)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(data.rename(columns={"number": "numbre"}))


@pytest.mark.slow
def test_containers_give_the_same_model() -> None:
    x, y = table(120)
    expected = quick().fit(x, y).predict(x)
    others = [
        x.tolist(),
        torch.as_tensor(x),
        sparse.csr_matrix(x),
        np.asfortranarray(x),
        x.astype(np.longdouble),
    ]
    others += [torch.tensor(x, requires_grad=True), torch.as_tensor(x).to_sparse()]
    for other in others:
        np.testing.assert_allclose(quick().fit(other, y).predict(other), expected, rtol=1e-6)
    for labels in (y.tolist(), torch.as_tensor(y), pd.Series(y)):
        np.testing.assert_allclose(quick().fit(x, labels).predict(x), expected, rtol=1e-6)


def test_labels_that_cannot_be_regressed_on() -> None:
    x, y = table(60)
    y = y.copy()
    y[17] = np.nan
    with pytest.raises(ValueError, match=r"row 17 is nan.*drop these rows"):
        quick().fit(x, y)
    with pytest.raises(ValueError, match="y holds dates: turn them into numbers first"):
        quick().fit(x, pd.Series(pd.date_range("2024", periods=60)))
    with pytest.raises(ValueError, match="must be numbers"):
        quick().fit(x, ["cheap"] * 60)
    with pytest.raises(ValueError, match="inconsistent"):
        quick().fit(x, np.zeros(50))
    with pytest.raises(ValueError, match=r"\(rows, targets\)"):
        quick().fit(x, np.zeros((60, 2, 2)))
    with pytest.raises(ValueError, match=r"y exceeds 1e\+150 in row 5: rescale it"):
        quick().fit(x, np.where(np.arange(60) == 5, 1e200, 1.0))


def test_tables_that_cannot_be_used() -> None:
    x, y = table(60)
    x[3, 1] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        quick().fit(x, y)
    data = pd.DataFrame(x[:, :2], columns=["a", "a"])
    with pytest.raises(ValueError, match="'a' occurs twice"):
        quick().fit(data, y)
    named = pd.DataFrame(x, columns=["a", "b", "c"])
    with pytest.raises(ValueError, match="column 'b' holds an infinity in row 3"):
        quick().fit(named, y)
    with pytest.raises(ValueError, match="column 'd' holds complex numbers"):
        quick().fit(named.assign(d=1j), y)
    with pytest.raises(ValueError, match="0 feature"):
        quick().fit(named[[]], y)
    with pytest.raises(ValueError, match="0 sample"):
        quick().fit(named[:0], y[:0])
    empty = pd.DataFrame({"a": [None] * 60, "b": [None] * 60}, dtype=object)
    with pytest.raises(ValueError, match=r"no column of X holds a value \(a, b\)"):
        quick().fit(empty, y)
    with pytest.raises(ValueError, match="column 'a' holds an infinity or a number too large"):
        quick().fit(empty.assign(a=pd.Series([np.inf] + [1.0] * 59, dtype=object)), y)


def test_warnings_about_new_rows_survive_saving(tmp_path: Path) -> None:
    x, y = frame(200)
    towns = np.where(np.arange(200) % 4 > 0, "capital", [f"c{i}" for i in range(200)])  # 50 occur once
    x = x.assign(town=towns)
    model = quick(epochs=1).fit(x, y)  # the rows held out give no warning
    model.save(tmp_path / "m")
    new = x.assign(flag=None, kind="never seen", town=np.where(towns == "capital", towns, "abroad"))
    for fitted in (model, TailRegressor.load(tmp_path / "m")):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert np.isfinite(fitted.predict(new)).all()
        assert [str(warning.message).partition(":")[0] for warning in caught] == [
            "column 'flag' was never missing at fit, but is in 200 of 200 rows",
            "column 'kind' holds values unknown at fit, such as 'never seen', in 200 of 200 rows",
        ]


@pytest.mark.parametrize("own", [{}, {"backbone": nn.Linear(3, 4), "feature_dim": 4}], ids=["table", "own"])
@pytest.mark.parametrize("wrap", [lambda d: d, DataLoader], ids=["Dataset", "DataLoader"])
def test_a_torch_data_set_is_told_where_to_go(own: dict[str, Any], wrap: Any) -> None:
    X, y = table(60)
    inputs = torch.tensor(X, dtype=torch.float32)
    given = wrap(TensorDataset(inputs, torch.tensor(y)))
    model = quick(epochs=1, **own)
    says = rf"X is a {type(given).__name__}: .*arrays, tensors .* goes to tailwise.training.loop.fit"
    with pytest.raises(TypeError, match=says):
        model.fit(given, y)
    model.fit(inputs, y)
    with pytest.raises(TypeError, match=says):
        model.predict(given)
