"""Predictions in batches."""

from __future__ import annotations

import pytest
import torch

from tailwise.training.loop import fit, predict
from tests.training.small_models import ROWS, X, Y, settings, vir


@pytest.mark.parametrize("training_mode", [True, False])
def test_predict_does_not_depend_on_the_batch_size_and_keeps_the_mode(training_mode: bool) -> None:
    model = vir()
    fit(model, (X, Y), None, settings(epochs=1))
    model.train(training_mode)
    whole = predict(model, X)
    for size in (1, 7, ROWS):
        parts = predict(model, X, batch_size=size)
        torch.testing.assert_close(parts.mean, whole.mean, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(parts.variance, whole.variance, rtol=1e-5, atol=1e-6)
    assert whole.shape == (ROWS,)
    assert not whole.mean.requires_grad
    assert model.training is training_mode
