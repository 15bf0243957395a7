"""BSAM: sharpness-aware steps on a loss that is weighted by label density."""

from __future__ import annotations

from tailwise.methods.registry import register
from tailwise.networks.parts import Method, Part

register(
    "bsam",
    title="BSAM",
    parts=Method(
        losses=(Part("absolute"),), weights=Part("density", kernel=None), sharpness=Part("sam", rho=0.2)
    ),
    group="since-vir",
    about=(
        "BSAM takes the gradient at weights that are moved by rho along the gradient of the same loss, here "
        "absolute error with SQINV weights, BSAM:step (Liu et al., Balanced Sharpness-Aware Minimization for "
        "Imbalanced Regression, ICCV 2025)."
    ),
)
