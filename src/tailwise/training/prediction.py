"""Predictions of a model for many rows, in batches."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from tailwise.distributions.members import Distribution, concatenate
from tailwise.networks.pool import Predictor
from tailwise.networks.ranks import gathered
from tailwise.networks.together import Together
from tailwise.training.batches import Batch, Halves, TensorData, apply_if, batches, tensors_of

_NUMBERS_PER_BATCH = 2**26  # at most so many inputs in a batch of predictions


def predict_batches(
    model: Predictor | Together,
    data: TensorData | Iterable[Any],
    batch_size: int,
    device: torch.device,
    share: tuple[int, int] = (0, 1),
    halves: Halves | None = None,
) -> tuple[Distribution, Tensor]:
    """Predict every batch once, on one of the ranks that share them; all ranks return all, in order."""
    if model.training:
        model.eval()
    predicted, halves = [], halves or Halves()

    def work(part: Batch) -> Distribution:
        prediction: Distribution = model(part.x, offset=part.offset)
        return prediction.map(lambda p: p.cpu())

    with torch.no_grad():
        for batch in batches(data, batch_size, device, share=share):
            parts = halves(work, batch)
            predicted.append((parts[0] if len(parts) == 1 else concatenate(parts), batch.y.cpu()))
    of_ranks = [predicted] if share == (0, 1) else gathered(predicted)
    in_order = [batch for turn in zip_longest(*of_ranks) for batch in turn if batch is not None]
    if not in_order:
        raise ValueError("the validation data has no batch: the loader is empty or exhausted")
    return concatenate([prediction for prediction, _ in in_order]), torch.cat([y for _, y in in_order])


@torch.no_grad()
def predict(
    model: Predictor | Together, x: Any, batch_size: int = 4096, offset: Tensor | None = None
) -> Distribution:
    """Predict all rows of an input in batches on the model's device; the result is on the CPU.

    Batches of large inputs, such as pictures, have fewer rows than `batch_size`.
    offset: base predictions (N,), or (N, T) for several targets, for a model built with ``offset=True``.
    """
    training, device = model.training, model.device
    rows = len(tensors_of(x)[0])
    if rows == 0:
        raise ValueError("no rows to predict")
    numbers = max(t[0].numel() for t in tensors_of(x))
    batch_size = max(1, min(batch_size, _NUMBERS_PER_BATCH // max(numbers, 1)))
    data = TensorData(x, torch.zeros(rows, device=device), offset=apply_if(offset, lambda t: t.to(device)))
    try:
        return predict_batches(model, data, batch_size, device)[0]
    finally:
        if training:
            model.train()
