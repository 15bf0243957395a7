"""VIR as one class, for a training loop of the user's own."""

from __future__ import annotations

from typing import Any

from torch import nn

from tailwise.core.labels import LabelBins
from tailwise.core.lookup import nearest
from tailwise.networks.model import TailModel
from tailwise.networks.parts import PRESETS


class VIR(TailModel):
    """Variational imbalanced regression on any backbone that returns features.

    Latents are Gaussian and smoothed over neighbouring label bins. The head's pseudo-counts are
    weighted by label rarity. Predictions are Student-t, with aleatoric and epistemic variance. `preset`
    is ``default``, ``paper`` (the paper's text) or ``reference`` (the authors' preview code); any
    field of `Method` overrides it.

    >>> import torch
    >>> bins = LabelBins.from_labels([1, 2, 2, 3, 3, 3])
    >>> model = VIR(nn.Linear(4, 8), 8, bins)
    >>> objective, parts = model.loss(torch.zeros(6, 4), torch.tensor([1, 2, 2, 3, 3, 3]))
    >>> sorted(parts)
    ['kl', 'nll', 'reg']
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
        if preset not in PRESETS:
            raise ValueError(f"unknown preset {preset!r}{nearest(preset, PRESETS)}")
        method = PRESETS[preset].with_options(**options)
        if method.members > 1:
            raise ValueError('VIR is one network: use tailwise.build_model("vir", ...) for several members')
        super().__init__(backbone, feature_dim, bins, method, decoder=decoder, offset=offset)
