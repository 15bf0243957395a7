"""Regression where the interesting labels are rare: accurate in the tail, and honest about it.

The public names load on first use, so that the command line answers before torch is imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tailwise._version import __version__

if TYPE_CHECKING:
    from tailwise.diagnosis import diagnose
    from tailwise.distributions import NIG, Mixture, Normal
    from tailwise.estimator import TailRegressor
    from tailwise.kernels import label_weights
    from tailwise.labels import LabelBins
    from tailwise.methods import available_methods, build_model
    from tailwise.model import VIR

_HOMES = {
    "LabelBins": "labels",
    "Mixture": "distributions",
    "NIG": "distributions",
    "Normal": "distributions",
    "TailRegressor": "estimator",
    "VIR": "model",
    "available_methods": "methods",
    "build_model": "methods",
    "diagnose": "diagnosis",
    "label_weights": "kernels",
}

__all__ = [
    "NIG",
    "VIR",
    "LabelBins",
    "Mixture",
    "Normal",
    "TailRegressor",
    "__version__",
    "available_methods",
    "build_model",
    "diagnose",
    "label_weights",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tailwise' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tailwise.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
