"""What the estimator makes of its inputs, labels and base before it trains."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from tailwise.model import base as preparing
from tests.estimator.small_tables import quick, table


def test_a_wrong_eval_set_is_found_before_the_base_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "cross_fit", None)
    x, y = table()
    with pytest.raises(ValueError, match="X has 2 features"):
        quick(base="catboost").fit(x, y, eval_set=(x[:, :2], y))
    with pytest.raises(ValueError, match="inconsistent"):
        quick(base="catboost").fit(x, y, eval_set=(x, y[:5]))


def test_an_eval_set_of_other_labels_or_too_few_rows() -> None:
    x, y = table(100)
    constant = quick().fit(x, y, eval_set=(x[:50], np.full(50, 1.0)))
    beyond = quick().fit(x, y, eval_set=(x[:50], y[:50] + 1e6))
    for model in (constant, beyond):
        assert np.isfinite(model.predict_frame(x).drop(columns="region").to_numpy()).all()
    lower, upper = beyond.predict_interval(x).T
    assert ((y + 1e6 >= lower) & (y + 1e6 <= upper)).mean() > 0.8
    single = quick().fit(x, y, eval_set=(x[:1], y[:1]))
    text = single.explain_intervals()
    with pytest.warns(UserWarning, match="there are 1. The intervals span all training labels"):
        assert np.isfinite(single.predict_interval(x)).all() and "inf" not in text
    assert "No promise: 0.9 intervals take 9 held-out rows" in text and "the largest error seen" in text


def test_intervals_by_the_number_of_a_column_and_what_is_wrong() -> None:
    x, y = table(300)
    model = quick(conformal_by=1, folds=2).fit(x, np.c_[y, y])
    assert len(model.model_.inputs.groups.names) == 5
    assert np.isfinite(model.predict_interval(x)).all()
    names = pd.DataFrame(x, columns=["u", "v", "w"])
    assert quick(conformal_by=2).fit(names, y).explain_intervals().count("held-out row") > 5
    for params, X, message in (
        ({"conformal_by": "v"}, x, "X has no names: give its number"),
        ({"conformal_by": 3}, x, "conformal_by=3 is not one of 3 columns"),
        ({"conformal_by": 3}, names, "conformal_by=3 is not one of 3 columns"),
        ({"conformal_by": "vv"}, names, "column of conformal_by"),
        ({"conformal_by": "v", "conformal": None}, names, "needs conformal intervals"),
        ({"conformal_by": "v", "backbone": "resnet18"}, names, "names a column of a table"),
    ):
        with pytest.raises(ValueError, match=message):
            quick(**params).fit(X, y)
    with pytest.raises(ValueError, match="cannot be part of an ONNX file: pass coverage=None"):
        quick(conformal_by=1).fit(x, y).export_onnx("never.onnx")


@pytest.mark.parametrize("verbose", [0, 1])
def test_fitting_the_base_is_announced(verbose: int, caplog: pytest.LogCaptureFixture) -> None:
    x, y = table(60)
    with caplog.at_level("INFO", logger="tailwise"):
        quick(base=Ridge(), epochs=1, verbose=verbose).fit(x, y)
    assert ("fitting the base to 60 rows" in caplog.text) == bool(verbose)
