"""Which base is ``base="auto"``: boosted trees or none, on the development tables.

    python benchmarks/bases.py --seeds 1 --write

`TailRegressor` is fitted with each base and its other defaults, with at most 2,000, 500 and 200 training
rows, because small tables are where bases differed most. `rare` has the 15% of the test labels that are
rarest in training, `few-shot` the labels in bins with fewer than 20 training rows. Time is the processor time
of a fit with its base. Figures are divided by those with CatBoost, but for coverages.

The rule, written before these runs: the score of a base is the geometric mean of its MAE and its CRPS of rare
labels over tables and sizes, averaged over seeds. Of the bases within 1% of the lowest score the one with the
lightest dependency is taken: none, scikit-learn's HistGradientBoosting, LightGBM (a few MB), CatBoost (about
100 MB). CatBoost has been the default since prototypes on these tables that were not kept.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from development import DOCS, Figures, Line, Study, fitted
from tailwise.benchmark.data.natural_splits import NaturalSplit

BASES = {
    "CatBoost": "catboost",
    "LightGBM": "lightgbm",
    "HistGradientBoosting": "hist-gradient-boosting",
    "none": None,
}
"""From the heaviest dependency to the lightest."""
SAME = 1.01


def measure(split: NaturalSplit) -> dict[str, Figures]:
    """Return the figures of every base on one split."""
    return {name: fitted(split, {"base": base}) for name, base in BASES.items()}


def score(study: Study, lines: Sequence[Line], base: str) -> float:
    """Return the geometric mean of MAE and CRPS of rare labels, divided by CatBoost's."""
    mae, rare = (study.ratio(lines, base, figure)[0] for figure in ("mae", "rare_crps"))
    return float((mae * rare) ** 0.5)


def chosen(study: Study, lines: Sequence[Line]) -> str:
    """Return the base that the rule takes."""
    scores = {base: score(study, lines, base) for base in study.settings}
    return [base for base in study.settings if scores[base] <= SAME * min(scores.values())][-1]


STUDY = Study(__doc__ or "", DOCS / "bases.jsonl", list(BASES), (2000, 500, 200), measure, chosen)

if __name__ == "__main__":
    sys.exit(STUDY.main())
