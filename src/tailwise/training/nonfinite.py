"""The error for a loss that is not finite: which part, when, and which rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tailwise.networks.network import Network
from tailwise.networks.ranks import gathered
from tailwise.training.batches import Batch, finite_rows


class NonFiniteLossError(RuntimeError):
    """A loss or gradient was not finite; the model has the weights from before that step."""

    def __init__(self, message: str, *, epoch: int, step: int, rows: list[int]) -> None:
        super().__init__(message)
        self.epoch, self.step, self.rows = epoch, step, rows


def explain_step(model: Network, step: Sequence[Batch], epoch: int, number: int) -> NonFiniteLossError:
    """Return the error of the first batch of a step, on any rank, that has rows to name."""
    found = [explain_nonfinite(model, batch, epoch, number) for batch in step]
    told = [(str(error), error.rows) for error in found]
    everywhere = [one for rank in gathered(told) for one in rank]
    message, rows = next((one for one in everywhere if one[1]), everywhere[0])
    return NonFiniteLossError(message, epoch=epoch + 1, step=number + 1, rows=rows)


@torch.no_grad()
def explain_nonfinite(model: Network, batch: Batch, epoch: int, step: int) -> NonFiniteLossError:
    """Return an error that names the rows of a batch behind the failure, and what to do about them."""
    per_row = model.row_losses(batch.x, batch.y, batch.offset)
    names = [name for name, value in per_row.items() if not torch.isfinite(value).all()]
    bad_loss = ~torch.stack([torch.isfinite(v).reshape(-1) for v in per_row.values()]).all(0)
    bad_label = ~torch.isfinite(batch.y.reshape(-1))
    bad_input = ~finite_rows(batch.x)
    bad_weight, bad_offset = (
        torch.zeros_like(bad_label) if given is None else ~torch.isfinite(given.reshape(-1))
        for given in (batch.sample_weight, batch.offset)
    )
    numbers = torch.arange(len(batch.y)) if batch.rows is None else batch.rows.cpu()
    where = "rows of the batch" if batch.rows is None else "training rows"

    def listed(mask: Tensor) -> list[int]:
        per_sample = mask.reshape(len(batch.y), -1).any(1).cpu()
        return [int(n) for n in numbers[per_sample]]

    message = f"the loss is not finite in epoch {epoch + 1}, step {step + 1}"
    if names:
        message += f" (part: {', '.join(names)})"
    rows = listed(bad_loss)
    if bad_label.any():
        rows, cause = listed(bad_label), "their labels are not finite; drop or fill them"
    elif bad_input.any():
        rows, cause = listed(bad_input), "their inputs are not finite; impute or drop them"
    elif bad_weight.any():
        rows, cause = listed(bad_weight), "their sample_weight is not finite"
    elif bad_offset.any():
        rows, cause = listed(bad_offset), "their offset, the base prediction, is not finite"
    elif rows:
        cause = "inputs and labels are finite; lower the learning rate, or set clip_norm"
    else:
        cause = "each loss is finite but a gradient is not; lower the learning rate, or set clip_norm"
    shown = ", ".join(map(str, rows[:5])) + (f" and {len(rows) - 5} more" if len(rows) > 5 else "")
    message += f"; {where} {shown}: {cause}" if rows else f": {cause}"
    return NonFiniteLossError(message, epoch=epoch + 1, step=step + 1, rows=rows)
