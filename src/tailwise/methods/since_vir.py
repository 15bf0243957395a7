"""BSAM, and VIR with parts of the methods since: rows without code of their own."""

from __future__ import annotations

from tailwise.methods import rank_n_contrast, uvote  # noqa: F401  (their parts)
from tailwise.methods.registry import register
from tailwise.networks.parts import Method, Part
from tailwise.networks.vir import DEFAULT

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
for _name, _title, _options, _text in (
    (
        "vir-rnc",
        "VIR + Rank-N-Contrast",
        {"rnc.weight": 0.1},
        "with RNC:loss on its smoothed latents (Zha et al., Rank-N-Contrast, NeurIPS 2023)",
    ),
    (
        "vir-bsam",
        "VIR + BSAM",
        {"sharpness": Part("sam", rho=0.2)},
        "trained by BSAM:step (Liu et al., Balanced Sharpness-Aware Minimization, ICCV 2025)",
    ),
    (
        "vir-uvote",
        "UVOTE with VIR's heads",
        {
            "weights": {"on": "count", "power": 1.0},
            "head": Part("voting", expert="pseudo-count"),
            "losses": ["experts", "kl"],
            "experts.evidence": DEFAULT.as_options()["evidence.weight"],
        },
        "whose heads are experts for common and for rare labels, UVOTE:loss and UVOTE:vote (Jiang et al., "
        "Uncertainty Voting Ensemble, GCPR 2024)",
    ),
):
    register(
        _name,
        title=_title,
        parts=DEFAULT.with_options(**_options),
        uncertainty="aleatoric and epistemic",
        group="since-vir",
        about=f"VIR (Wang and Wang, Variational Imbalanced Regression, NeurIPS 2023) {_text}.",
    )
