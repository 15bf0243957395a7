"""The presets of VIR, and VIR as one class, for a training loop of the user's own."""

from __future__ import annotations

from typing import Any

from torch import nn

from tailwise.labels.bins import LabelBins
from tailwise.lookup import check_name
from tailwise.networks.network import Network, warn_without_decoder
from tailwise.networks.parts import Method, Part

LEAST_COUNT = (20.0, 1e9)
"""A smoothed count below 20 rows counts as 20: rarer labels weigh no more, which the development tables chose
(research/results/vir-weights.md)."""
PAPER = Method(
    weights=Part("density", on="count", scale="density"),
    smoothing=Part("statistics", at_inference=True),
    latent=Part("gaussian"),
    head=Part("pseudo-count", sharpness=0.1, prior=(0.0, 1.0, 1.5, 1.0)),
    losses=(
        Part("nll"),
        Part("evidence", weight=0.1),
        Part("kl", weight=1.0, mean=True),
        Part("reconstruction", mean=True),
    ),
    inference=Part("self"),
)
REFERENCE = PAPER.with_options(
    **{
        "weights": {"form": "reference", "scale": "mean"},
        "smoothing": {"form": "reference", "boundary": "reflect", "at_inference": False},
        "head.prior": (0.0, 0.0, 0.3, 0.0),
        "evidence": {"weight": 0.01, "form": "reference"},
        "kl": None,
        "reconstruction.weight": 1.4,  # its 0.7 multiplies the mean squared error, VIR:recon has half of that
        "inference": "plain",
    }
)
DEFAULT = PAPER.with_options(
    **{
        "weights": {"on": "both", "clip": LEAST_COUNT, "scale": "mean"},
        "latent.var_start": -7.0,  # little noise at the start
        "smoothing": {"bandwidth": 0.64, "at_inference": False},
        "head": {"sharpness": 1.0, "prior": (0.0, 0.1, 1.5, 0.01)},
        "evidence.weight": 0.026,
        "kl": {"weight": 2.4e-5, "mean": False},
        "reconstruction": None,
    }
)
PRESETS = {"default": DEFAULT, "paper": PAPER, "reference": REFERENCE}


class VIR(Network):
    """Variational imbalanced regression on any backbone that returns features.

    Latents are Gaussian and smoothed over neighbouring label bins. The head's pseudo-counts are
    weighted by label rarity. Predictions are Student-t, with aleatoric and epistemic variance. `preset`
    is ``default``, ``paper`` (the paper's text) or ``reference`` (the authors' preview code); options of
    `Method.with_options` change its parts. The last two presets reconstruct inputs by a `decoder`, and warn
    without one.

    >>> import torch
    >>> bins = LabelBins.from_labels([1, 2, 2, 3, 3, 3])
    >>> model = VIR(nn.Linear(4, 8), 8, bins, **{"evidence.weight": 0.1})
    >>> objective, parts = model.loss(torch.zeros(6, 4), torch.tensor([1, 2, 2, 3, 3, 3]))
    >>> list(parts)
    ['nll', 'evidence', 'kl']
    >>> model.eval()(torch.zeros(2, 4)).mean.shape
    torch.Size([2])
    """

    def __init__(
        self,
        backbone: nn.Module,
        feature_dim: int,
        bins: LabelBins,
        *,
        preset: str = "default",
        decoder: nn.Module | None = None,
        offset: bool = False,
        **options: Any,
    ) -> None:
        if not isinstance(bins, LabelBins):
            raise TypeError(
                f"bins must be the LabelBins of one target, not {type(bins).__name__}: make them with "
                "LabelBins.from_labels(y); for several targets pass a list of them to "
                'tailwise.build_model("vir", ...)'
            )
        check_name("preset", preset, PRESETS)
        method = PRESETS[preset].with_options(**options)
        warn_without_decoder(method, decoder)
        super().__init__(backbone, feature_dim, bins, method, decoder=decoder, offset=offset)
