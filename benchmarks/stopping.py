"""How long the networks of TailRegressor train: batches, rate and patience, on the development tables.

    python benchmarks/stopping.py --seeds 2 --write

On one table two of five networks had stopped after 14 and 21 epochs with a much higher NLL than the others:
an epoch has three steps, and ten epochs without improvement are often chance. The intervals were a third
wider for it. Here `TailRegressor` is fitted with other settings to the same rows and the same base
predictions, with at most 4,000 and with at most 1,000 training rows. Its other settings are the defaults.

`rare` has the 15% of the test labels that are rarest in training, `few-shot` the labels in bins with fewer
than 20 training rows. `steps` are the steps of an epoch. Time is the processor time of the networks. Figures
are divided by those of the former setting (3 steps, rate 0.003, patience 10), but for coverages.

The rule, written before the runs: of the settings whose MAE is at most 0.5% above the former one's and whose
time is at most three times as long, those count whose CRPS of rare labels is within 0.5% of the lowest. The
one with the narrowest 90% intervals over all rows wins. Figures are geometric means over tables and sizes,
averaged over seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from development import DOCS, Figures, Line, Study, fitted
from tailwise.benchmark.data.natural_splits import NaturalSplit
from tailwise.data.tables.preprocessing import TablePreprocessor
from tailwise.model.base import AUTO, BASES, cross_fit, deal_folds

MOST_MAE, MOST_TIME, SAME_CRPS = 1.005, 3.0, 1.005


@dataclass(frozen=True)
class Setting:
    """How the networks train."""

    steps: int
    lr: float
    patience: int

    @property
    def name(self) -> str:
        return f"{self.steps} steps, rate {self.lr:g}, patience {self.patience}"

    def parameters(self, rows: int) -> dict[str, Any]:
        """Return parameters of TailRegressor, which holds out a fifth of the training rows."""
        batch = int(np.clip(2 ** np.round(np.log2(0.8 * rows / self.steps)), 32, 2048))
        return {"batch_size": batch, "lr": self.lr, "patience": self.patience}


FORMER = Setting(3, 3e-3, 10)
SETTINGS = (
    FORMER,
    Setting(3, 3e-3, 20),
    Setting(3, 3e-3, 30),
    Setting(3, 3e-3, 50),
    Setting(3, 1e-3, 10),
    Setting(3, 1e-3, 30),
    Setting(6, 3e-3, 15),
    Setting(6, 3e-3, 30),
    Setting(6, 1e-3, 15),
    Setting(6, 1e-3, 30),
    Setting(12, 3e-3, 15),
    Setting(12, 1e-3, 10),
    Setting(12, 1e-3, 20),
)


def measure(split: NaturalSplit) -> dict[str, Figures]:
    """Return the figures of every setting on one split, with the same base predictions."""
    matrices = TablePreprocessor().fit(split.x_train)
    train, test = (matrices.matrix(x) for x in (split.x_train, split.x_test))
    fold, even = deal_folds(split.y_train, split.seed), np.ones(len(split.y_train))
    base, out_of_fold = cross_fit(BASES[AUTO], train, split.y_train, even, fold, split.seed)
    bases = out_of_fold, base.predict(test)
    return {s.name: fitted(split, s.parameters(len(split.y_train)), bases) for s in SETTINGS}


def chosen(study: Study, lines: Sequence[Line]) -> str:
    """Return the setting that the rule takes."""

    def mean(setting: str, figure: str) -> float:
        return study.ratio(lines, setting, figure)[0]

    able = [s for s in study.settings if mean(s, "mae") <= MOST_MAE and mean(s, "seconds") <= MOST_TIME]
    least = min(mean(s, "rare_crps") for s in able)
    close = [s for s in able if mean(s, "rare_crps") <= least * SAME_CRPS]
    return min(close, key=lambda s: mean(s, "width"))


STUDY = Study(
    __doc__ or "", DOCS / "stopping.jsonl", [s.name for s in SETTINGS], (4000, 1000), measure, chosen
)

if __name__ == "__main__":
    sys.exit(STUDY.main())
