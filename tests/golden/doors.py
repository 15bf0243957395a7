"""Everything of tailwise that the golden cases use.

The names that are not public yet are imported here and nowhere else. Code that moves them changes this file.
"""

from tailwise import (
    NIG,
    VIR,
    LabelBins,
    Mixture,
    Normal,
    TailRegressor,
    __version__,
    available_methods,
    build_model,
    diagnose,
    label_weights,
)
from tailwise.calibration.intervals import ConformalIntervals
from tailwise.calibration.scaling import balanced_weights, fit_scaling
from tailwise.data import load_abalone
from tailwise.distributions.members import concatenate, pooled, stack
from tailwise.distributions.truncation import Bounds
from tailwise.explanations import importance, partial_dependence, shapley
from tailwise.labels.prior import LabelDensity, change_of_prior, emphasis
from tailwise.metrics import by_bin, by_region, crps, evaluate, scorer
from tailwise.resampling.smogn import smogn, smoter
from tailwise.serving.model_card import model_card
from tailwise.serving.web import Service
from tailwise.training.loop import TrainConfig, fit, predict
from tests.command_line import invoke

__all__ = [
    "NIG", "VIR", "Bounds", "ConformalIntervals", "LabelBins", "LabelDensity", "Mixture", "Normal", "Service",
    "TailRegressor", "TrainConfig", "__version__", "available_methods", "balanced_weights", "build_model",
    "by_bin", "by_region", "change_of_prior", "concatenate", "crps", "diagnose", "emphasis", "evaluate",
    "fit", "fit_scaling", "importance", "invoke", "label_weights", "load_abalone", "model_card",
    "partial_dependence", "pooled", "predict", "scorer", "shapley", "smogn", "smoter", "stack",
]  # fmt: skip
