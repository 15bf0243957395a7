"""Predictions of a fitted model for new rows."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from tests.estimator.small_tables import frame, quick, table


def test_encoded_rows_predict_as_the_table_does() -> None:
    X, y = frame(60)
    model = quick(epochs=1).fit(X, y)
    fitted = model.model_
    (of_table,) = fitted.raw(fitted.encode(X))
    (of_numbers,) = fitted.raw(fitted.table.from_numbers(fitted.table.numbers(X)))
    np.testing.assert_array_equal(of_table.pooled.mean, of_numbers.pooled.mean)
    assert of_table.networks == () and not of_table.groups.any()
    with pytest.raises(ValueError, match="no rows to predict"):
        model.predict(X.convert_dtypes()[:0])
    x, y = table(30)
    own = quick(backbone=nn.Linear(3, 4), feature_dim=4, epochs=1).fit(x.astype("float32"), y)
    with pytest.raises(ValueError, match="this model takes no tables"):
        _ = own.model_.table


def test_a_row_is_predicted_alike_whatever_rows_are_beside_it() -> None:
    x, y = table(60)
    model = quick(epochs=1, folds=2).fit(x, np.c_[y, -y])
    together = model.predict_interval(x, emphasis=0.5)
    for row in (0, 59):
        alone = model.predict_interval(x[[row]], emphasis=0.5)[0]
        np.testing.assert_allclose(alone, together[row], rtol=1e-12)  # float32 would be off by 1e-7
    with pytest.raises(ValueError, match="label_prior must be a list with one for each of the 2 targets"):
        model.predict(x, label_prior=[y])
