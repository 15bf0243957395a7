"""Tables and tensors of every kind, and errors that name what is wrong with them."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from tailwise import TailRegressor
from tests.estimator.small_tables import frame, quick


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
            "column 'kind' holds values unknown at fit, such as 'never seen', in 200 of 200 rows",
            "column 'flag' was never missing at fit, but is in 200 of 200 rows",
        ]
