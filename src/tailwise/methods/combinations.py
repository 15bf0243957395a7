"""VIR with parts of the methods since."""

from __future__ import annotations

from tailwise.methods import rank_n_contrast, uvote  # noqa: F401  (their parts)
from tailwise.methods.registry import register
from tailwise.networks.parts import Part
from tailwise.networks.vir import DEFAULT

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
