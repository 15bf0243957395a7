"""Batches that do not fit into a GPU's memory are halved, and training goes on."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

import torch

from tailwise.training.batches import Batch, apply_to

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Halves:
    """Works on batches; on halves of them once one did not fit into memory, then on quarters, and so on.

    `most` is the number of rows that a part may have; None while every batch has fitted. `tidy` is called
    before a smaller part is tried, to let go of memory. A part has at least `least` rows.
    """

    def __init__(self, *, least: int = 1, tidy: Callable[[], None] = lambda: None) -> None:
        self.least, self.tidy = least, tidy
        self.most: int | None = None

    def __call__(self, work: Callable[[Batch], T], batch: Batch) -> list[T]:
        """Return what `work` returns for the batch, or for each part of it."""
        waiting, done = deque([batch]), list[T]()
        while waiting:
            part = waiting.popleft()
            if (smaller := self._parts(len(part.y))) > 1:
                waiting.extendleft(reversed(divided(part, smaller)))
                continue
            try:
                done.append(work(part))
                continue
            except torch.OutOfMemoryError as error:
                rows = len(part.y)
                if rows < 2 * self.least:
                    raise RuntimeError(
                        f"the GPU has not enough memory for {rows} rows at a time: use a smaller network, "
                        "smaller pictures, or the CPU"
                    ) from error
            # Here the error is gone, and with it the tensors of the failed attempt.
            self.tidy()
            if torch.cuda.is_initialized():
                torch.cuda.empty_cache()
            self.most = -(-rows // 2)
            logger.warning(
                "the GPU has not enough memory for %d rows at a time: batches are halved to %d rows; set a "
                "smaller batch_size to start with",
                rows,
                self.most,
            )
            waiting.appendleft(part)
        return done

    def _parts(self, rows: int) -> int:
        """Return the number of parts of a batch."""
        return 1 if self.most is None else min(-(-rows // self.most), rows // self.least)


def divided(batch: Batch, parts: int) -> list[Batch]:
    """Divide a batch into parts of nearly equal size."""
    ends = [len(batch.y) * part // parts for part in range(parts + 1)]

    def rows(begin: int, end: int) -> Batch:
        others = (batch.sample_weight, batch.offset, batch.rows)
        return Batch(
            apply_to(batch.x, lambda t: t[begin:end]),
            batch.y[begin:end],
            *(None if t is None else t[begin:end] for t in others),
        )

    return [rows(begin, end) for begin, end in pairwise(ends)]
