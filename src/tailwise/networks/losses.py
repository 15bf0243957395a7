"""Per-row losses. Each takes a distribution or latent rows and returns one value per row.

Averaging and weighting happen in `weighted_mean` alone, so that no loss can weight twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tailwise.core.distributions import NIG, Distribution
from tailwise.core.labels import LabelBins
from tailwise.core.lookup import make_by_name

RegularizerForm = Literal["paper", "reference"]


def weighted_mean(per_row: Tensor, w: Tensor | None = None) -> Tensor:
    """Average per-row losses, each multiplied by its weight. per_row: (N,), w: (...)

    The weights average 1 over the training set. They are not normalised within a batch, so that common
    labels do not count more in a batch without rare ones. If there are fewer weights than losses, each
    weight applies to a block of consecutive losses, such as the pixels of an image.
    """
    if w is None:
        return per_row.mean()
    if w.numel() == 0 or len(per_row) % w.numel():
        raise ValueError(
            f"weights have shape {tuple(w.shape)}, but there are {len(per_row)} losses: pass one per row"
        )
    return (w.to(per_row.dtype).reshape(-1, 1) * per_row.reshape(w.numel(), -1)).mean()


def negative_log_likelihood(prediction: Distribution, y: Tensor) -> Tensor:
    """Return -log p(y): Student-t for NIG (VIR:nll), Gaussian for Normal. y: (N,)"""
    return prediction.nll(y)


def squared_error(prediction: Distribution, y: Tensor) -> Tensor:
    """Return (y - mean)^2. y: (N,)"""
    return (y - prediction.mean) ** 2


def absolute_error(prediction: Distribution, y: Tensor) -> Tensor:
    """Return |y - mean|. y: (N,)"""
    return (y - prediction.mean).abs()


class RowLoss(nn.Module):
    """An objective without state: a function of prediction and label, row by row."""

    def __init__(self, function: Callable[[Distribution, Tensor], Tensor], bins: LabelBins) -> None:
        super().__init__()
        self.function = function

    def forward(self, prediction: Distribution, y: Tensor) -> Tensor:
        """y: (N,) -> (N,)"""
        return self.function(prediction, y)


OBJECTIVES: dict[str, Callable[..., nn.Module]] = {
    "nll": partial(RowLoss, negative_log_likelihood),
    "squared": partial(RowLoss, squared_error),
    "absolute": partial(RowLoss, absolute_error),
}
"""Objectives by name. Each is called with the label bins and options, and returns a module whose
`forward(prediction, y)` gives one loss per row; y is standardised by the bins. An objective that
compares rows of a batch has a true attribute `across_rows`."""

MOST_COMPARED = 2048
"""Number of rows of a batch that are compared with one another; more rows, such as pixels, are sampled."""

PENALTIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {}
"""Penalties by name: functions of a batch's latents (N, D) and standardised labels (N,)."""


def make_objective(name: str, bins: LabelBins, options: Mapping[str, Any] | None = None) -> nn.Module:
    """Build an objective by name; an unknown name or option is an error that names the nearest one."""
    return make_by_name("objective", OBJECTIVES, name, bins, options=options)


def evidence_regularizer(prediction: NIG, y: Tensor, form: RegularizerForm = "paper") -> Tensor:
    """Return evidence times error, (nu + 2 alpha) |y - gamma| (VIR:reg). y: (N,)

    ``form="reference"`` is the preview code's (2 nu + alpha) |y - gamma|.
    """
    if form == "paper":
        evidence = prediction.nu + 2 * prediction.alpha
    elif form == "reference":
        evidence = 2 * prediction.nu + prediction.alpha
    else:
        raise ValueError(f"unknown regulariser form {form!r}: choose 'paper' or 'reference'")
    return evidence * (y - prediction.gamma).abs()


def latent_kl(z_mean: Tensor, z_var: Tensor) -> Tensor:
    """Return the KL divergence of N(z_mean, z_var) from N(0, I), summed over D (VIR:kl). (N, D) -> (N,)"""
    z_var = z_var.clamp_min(torch.finfo(z_var.dtype).tiny)
    return 0.5 * (z_var + z_mean**2 - 1 - z_var.log()).sum(-1)


def gaussian_reconstruction(x: Tensor, reconstruction: Tensor) -> Tensor:
    """Return -log N(x; reconstruction, I) without its constant (VIR:recon). (N, ...) -> (N,)"""
    if x.shape != reconstruction.shape:
        raise ValueError(
            f"the decoder returned shape {tuple(reconstruction.shape)} for inputs of shape {tuple(x.shape)}"
        )
    return 0.5 * ((x - reconstruction) ** 2).flatten(1).sum(-1)
