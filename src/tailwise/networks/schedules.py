"""Stages of training."""

from __future__ import annotations

from typing import ClassVar

from tailwise.options import Share


class Retrain:
    """Training in two stages: in the second, the backbone is frozen and a new head is trained.

    The second stage begins after the share `start` of the epochs. Label weights multiply losses in it only
    (Kang et al., ICLR 2020).
    """

    latents_first: ClassVar[bool] = False
    """Whether the first stage has the losses of latents only, and the second the others."""

    def __init__(self, *, start: Share = 0.5) -> None:
        self.start = start

    def begins(self, progress: float) -> bool:
        """Whether the second stage begins after this share of the epochs."""
        return progress >= self.start


class Pretrain(Retrain):
    """Training in two stages: first the backbone, by the losses that read latents only, then a head on it.

    The second stage begins after the share `start` of the epochs. The backbone is then frozen.
    """

    latents_first = True


SCHEDULES: dict[str, type[Retrain]] = {"retrain": Retrain, "pretrain": Pretrain}
"""Schedules by name; each is made with its options."""
