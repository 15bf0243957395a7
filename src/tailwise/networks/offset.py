"""A base prediction around which a network predicts (VIR:offset)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Offset(nn.Module):
    """Where the predicted distribution is centred: a f0 + b, with f0 the base prediction (VIR:offset).

    f0 is standardised as labels are. The scalars a and b are learned, one pair per member; they start at 1
    and 0, so that an untrained network predicts the base.
    """

    def __init__(self, members: int = 1) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.ones(members))
        self.intercept = nn.Parameter(torch.zeros(members))

    def forward(self, base: Tensor) -> Tensor:
        """base: (N * members,), rows of member 0, 1, ... in turn -> (N * members,)"""
        by_member = base.reshape(-1, len(self.slope))
        return (by_member * self.slope + self.intercept).flatten()
