"""Losses: what a network minimises, one number per row. A method is trained on the sum of its losses.

Averaging over rows and weighting happen in the network alone, so that no loss can weight twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from tailwise.distributions.members import NIG, Distribution, Mixture
from tailwise.labels.bins import LabelBins

MOST_COMPARED = 2048
"""Number of rows of a batch that are compared with one another; more rows, such as pixels, are sampled."""


@dataclass(frozen=True)
class LatentBatch:
    """What a network has computed for the rows of a batch. Labels are standardised by the bins."""

    x: Any  # the input
    features: Tensor  # (N, F)
    z_mean: Tensor  # (N, D), smoothed
    z_var: Tensor | None  # (N, D)
    z: Tensor  # (N, D), drawn from the two in training
    prediction: Distribution  # (N,)
    y: Tensor  # (N,)
    index: Tensor  # (N,) label bin
    decoder: nn.Module | None = None

    def every(self, step: int, start: int = 0) -> LatentBatch:
        """Return every `step`-th row. The input stays whole."""
        names = ("features", "z_mean", "z_var", "z", "prediction", "y", "index")
        rows, values = slice(start, None, step), ((name, getattr(self, name)) for name in names)
        chosen: dict[str, Any] = {name: of if of is None else of[rows] for name, of in values}
        return replace(self, **chosen)

    def compared(self) -> LatentBatch:
        """Return the rows to compare with one another; of very many, such as pixels, every so many."""
        return self.every(max(1, -(-len(self.y) // MOST_COMPARED)))

    def members(self, number: int) -> Iterator[LatentBatch]:
        """Yield the rows of each member; rows belong to member 0, 1, ... in turn."""
        return (self.every(number, start=k) for k in range(number))


class Loss(nn.Module, ABC):
    """A loss or a penalty: a module that may hold parameters, and is made with the size of the latent and the
    bins.

    Its keyword-only arguments are its options. Each also has the option `weight`.
    """

    weight: float = 1.0
    """What the network multiplies it by; on the class, the default of the option."""

    weighted: ClassVar[bool] = True
    """Whether label weights multiply it."""
    compares_rows: ClassVar[bool] = False
    """Whether it compares the rows of a batch; of several members, it then gets one after the other."""
    reads_input: ClassVar[bool] = False
    """Whether it reads the input: one member at a time, in the precision of the backbone."""
    of_latents: ClassVar[bool] = False
    """Whether it reads latents and labels only, and not the prediction; see the schedule `pretrain`."""
    by_epoch: ClassVar[bool] = False
    """Whether it collects something over an epoch, for `end_epoch`. Each member then has its own loss."""

    def __init__(self, dim: int, bins: LabelBins) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, batch: LatentBatch) -> Tensor:
        """Return one loss per row. (N,)"""

    def end_epoch(self) -> None:
        """Let what was collected since the last call take effect."""


class NegativeLogLikelihood(Loss):
    """-log p(y): Student-t for NIG (VIR:nll), Gaussian for Normal."""

    def forward(self, batch: LatentBatch) -> Tensor:
        """-> (N,)"""
        return batch.prediction.nll(batch.y)


class SquaredError(Loss):
    """(y - mean)^2."""

    def forward(self, batch: LatentBatch) -> Tensor:
        """-> (N,)"""
        return (batch.y - batch.prediction.mean) ** 2


class AbsoluteError(Loss):
    """|y - mean|."""

    def forward(self, batch: LatentBatch) -> Tensor:
        """-> (N,)"""
        return (batch.y - batch.prediction.mean).abs()


class Evidence(Loss):
    """Evidence times error, (nu + 2 alpha) |y - gamma| (VIR:reg); `weight` is lambda of VIR:objective.

    ``form="reference"`` is the preview code's (2 nu + alpha) |y - gamma|. Of a mixture of NIG it is the mean
    over the components, each with the probability that the label came from it.
    """

    weight = 0.1

    def __init__(self, dim: int, bins: LabelBins, *, form: Literal["paper", "reference"] = "paper") -> None:
        super().__init__(dim, bins)
        self.form = form

    def forward(self, batch: LatentBatch) -> Tensor:
        """-> (N,)"""
        belief = batch.prediction.parametric
        cost = self.cost(belief, batch.y)
        if not isinstance(batch.prediction, Mixture):
            return cost
        shares = (batch.prediction.weights.log() - belief.nll(batch.y)).softmax(0).detach()
        return (shares * cost).sum(0)

    def cost(self, belief: Distribution, y: Tensor) -> Tensor:
        """Return evidence times error of a NIG. (..., N), (N,) -> (..., N)"""
        if not isinstance(belief, NIG):
            raise ValueError(
                "the loss 'evidence' needs a head that predicts a NIG: evidential, pseudo-count or modes"
            )
        nu, alpha = (1, 2) if self.form == "paper" else (2, 1)
        return (nu * belief.nu + alpha * belief.alpha) * (y - belief.gamma).abs()


class LatentKL(Loss):
    """KL divergence of N(z_mean, z_var) from N(0, I), summed over D (VIR:kl), or with `mean` averaged."""

    weighted = False

    def __init__(self, dim: int, bins: LabelBins, *, mean: bool = False) -> None:
        super().__init__(dim, bins)
        self.mean = mean

    def forward(self, batch: LatentBatch) -> Tensor:
        """-> (N,)"""
        if batch.z_var is None:
            raise ValueError("the loss 'kl' needs a latent with a variance: latent 'gaussian'")
        z_var = batch.z_var.clamp_min(torch.finfo(batch.z_var.dtype).tiny)
        kl = 0.5 * (z_var + batch.z_mean**2 - 1 - z_var.log()).sum(-1)
        return kl / batch.z_mean.shape[-1] if self.mean else kl


class FeatureDecoder(nn.Linear):
    """Reconstructs the features from a latent; all members share it."""


class Reconstruction(Loss):
    """-log p(x | z) of the network's decoder without constants (VIR:recon), summed over inputs or averaged.

    A network without a decoder has no such loss, unless `features` says that it reconstructs its features.
    """

    weighted, reads_input = False, True

    def __init__(self, dim: int, bins: LabelBins, *, mean: bool = False, features: bool = False) -> None:
        super().__init__(dim, bins)
        self.mean, self.features = mean, features

    def forward(self, batch: LatentBatch) -> Tensor:
        """-> (N,)"""
        decoder, z = batch.decoder, batch.z
        if isinstance(decoder, FeatureDecoder):
            total = gaussian_reconstruction(batch.features.detach(), decoder(z))
            numbers = batch.features.shape[-1]
        elif hasattr(decoder, "nll"):
            # A decoder of pictures has no `numbers`: its likelihood is an average already.
            total, numbers = cast("Any", decoder).nll(z, batch.x), int(getattr(decoder, "numbers", 1))
        elif isinstance(batch.x, Tensor):
            total = gaussian_reconstruction(batch.x, cast("nn.Module", decoder)(z))
            numbers = batch.x[0].numel()
        else:
            raise TypeError(
                f"a decoder reconstructs one tensor, but the input is a {type(batch.x).__name__}: give the "
                "decoder a method nll(z, x) that returns -log p(x | z) of each row"
            )
        return total / numbers if self.mean else total


LOSSES: dict[str, type[Loss]] = {
    "nll": NegativeLogLikelihood,
    "squared": SquaredError,
    "absolute": AbsoluteError,
    "evidence": Evidence,
    "kl": LatentKL,
    "reconstruction": Reconstruction,
}
"""Losses by name."""


def weighted_mean(per_row: Tensor, w: Tensor | None = None) -> Tensor:
    """Average per-row losses, each multiplied by its weight. per_row: (N,), w: (...)

    The weights average 1 over the training set. They are not normalised within a batch, so that common
    labels do not count more in a batch without rare ones. If there are fewer weights than losses, each
    weight applies to a block of consecutive losses, such as the pixels of an image.
    """
    if w is None:
        return per_row.mean()
    return (w.to(per_row.dtype).reshape(-1, 1) * per_row.reshape(w.numel(), -1)).mean()


def gaussian_reconstruction(x: Tensor, reconstruction: Tensor) -> Tensor:
    """Return -log N(x; reconstruction, I) without its constant (VIR:recon). (N, ...) -> (N,)"""
    if x.shape != reconstruction.shape:
        raise ValueError(
            f"the decoder returned shape {tuple(reconstruction.shape)} for inputs of shape {tuple(x.shape)}"
        )
    return 0.5 * ((x - reconstruction) ** 2).flatten(1).sum(-1)
