"""Every method by name: VIR, its ablations and the baselines, each a row of parts.

`available_methods`, `get_method` and `build_model` read the registry; `register` adds a method. `load_plugin`
runs a file of one's own that registers methods.
"""

from tailwise.methods import (  # noqa: F401  (fill the registry)
    balanced_mse,
    balanced_nll,
    conr,
    dist_loss,
    modes,
    pointwise,
    rank_n_contrast,
    ranksim,
    srl,
    table,
    two_part,
    uvote,
)
from tailwise.methods.plugins import load_plugin
from tailwise.methods.registry import RegisteredMethod, available_methods, build_model, get_method, register

__all__ = [
    "RegisteredMethod", "available_methods", "build_model", "get_method", "load_plugin", "register",
]  # fmt: skip
