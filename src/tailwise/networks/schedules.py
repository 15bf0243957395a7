"""Stages of training."""

from __future__ import annotations

from tailwise.options import Share


class Retrain:
    """Training in two stages: in the second, the backbone is frozen and a new head is trained.

    The second stage begins after the share `start` of the epochs. Label weights multiply losses in it only
    (Kang et al., ICLR 2020).
    """

    def __init__(self, *, start: Share = 0.5) -> None:
        self.start = start

    def begins(self, progress: float) -> bool:
        """Whether the second stage begins after this share of the epochs."""
        return progress >= self.start


SCHEDULES: dict[str, type[Retrain]] = {"retrain": Retrain}
"""Schedules by name; each is made with its options."""
