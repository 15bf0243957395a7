"""Metrics of predictions: by name, by label region and as scikit-learn scorers.

The public names of `tailwise.metrics.scores` and `tailwise.metrics.regions`.
"""

from tailwise.metrics.regions import (
    METRICS,
    REGIONS,
    Metric,
    RunningScores,
    Scorer,
    by_bin,
    by_region,
    evaluate,
    get_metric,
    scorer,
)
from tailwise.metrics.scores import (
    Sparsification,
    ause,
    ause_reference,
    coverage,
    crps,
    delta,
    ence,
    gaussian_nll,
    gaussian_nll_reference,
    gm,
    interval_score,
    log10,
    mae,
    mse,
    nll,
    pearson,
    rmse,
    sparsification,
    spearman,
    width,
)

__all__ = [
    "METRICS", "REGIONS", "Metric", "RunningScores", "Scorer", "Sparsification", "ause", "ause_reference",
    "by_bin", "by_region", "coverage", "crps", "delta", "ence", "evaluate",
    "gaussian_nll", "gaussian_nll_reference", "get_metric", "gm", "interval_score", "log10",
    "mae", "mse", "nll", "pearson", "rmse", "scorer", "sparsification", "spearman", "width",
]  # fmt: skip
