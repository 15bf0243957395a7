"""Regression with rare labels: models that are accurate on them and say how sure they are.

The public names, listed in `__all__`, load on first use, so that `tailwise --help` does not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tailwise._version import __version__

if TYPE_CHECKING:
    from tailwise.distributions.members import NIG as NIG
    from tailwise.distributions.members import Mixture as Mixture
    from tailwise.distributions.members import Normal as Normal
    from tailwise.estimator import TailRegressor as TailRegressor
    from tailwise.labels.bins import LabelBins as LabelBins
    from tailwise.labels.kernels import label_weights as label_weights
    from tailwise.methods import available_methods as available_methods
    from tailwise.methods import build_model as build_model
    from tailwise.networks.vir import VIR as VIR
    from tailwise.report.diagnosis import diagnose as diagnose

_HOMES = {
    "LabelBins": "labels.bins",
    "Mixture": "distributions.members",
    "NIG": "distributions.members",
    "Normal": "distributions.members",
    "TailRegressor": "estimator",
    "VIR": "networks.vir",
    "available_methods": "methods",
    "build_model": "methods",
    "diagnose": "report.diagnosis",
    "label_weights": "labels.kernels",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tailwise' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tailwise.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
