"""What every network promises that turns inputs into features."""

from __future__ import annotations

from torch import nn


class Backbone(nn.Module):
    """A network with features of a known size: (N, ...) -> (N, feature_dim).

    A network with `members` returns features of each member, (N, members, feature_dim).
    """

    feature_dim: int
    members: int | None = None
    name: str = ""
    """Its name, if it was made by name."""
