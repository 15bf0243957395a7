"""Stages of training."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tailwise.options import Share


class Schedule(ABC):
    """Training in two stages: in the second, the backbone is frozen and a new head is trained.

    Label weights multiply losses in the second stage only.
    """

    @abstractmethod
    def begins(self, progress: float) -> bool:
        """Whether the second stage begins after this share of the epochs."""


class Retrain(Schedule):
    """The second stage begins after the share `start` of the epochs (Kang et al., ICLR 2020)."""

    def __init__(self, *, start: Share = 0.5) -> None:
        self.start = start

    def begins(self, progress: float) -> bool:
        """Whether it is time."""
        return progress >= self.start


SCHEDULES: dict[str, type[Schedule]] = {"retrain": Retrain}
"""Schedules by name; each is made with its options."""
