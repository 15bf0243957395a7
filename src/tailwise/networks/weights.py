"""Weights of rows by the rarity of their labels (VIR:weight), and what they multiply."""

from __future__ import annotations

from typing import Annotated, Literal

from tailwise.labels.bins import Array, LabelBins
from tailwise.labels.kernels import KernelForm, Scale, Window, label_weights
from tailwise.options import Between, NotNegative, Positive

Acts = Literal["loss", "count", "both"]
"""Weights multiply the losses of a row, the pseudo-counts of its head, or both."""
Kernel = Literal["gaussian", "laplacian", "triangular"]
Radius = Annotated[int, Between(0, 10_000)]


class Weights:
    """One weight per label bin, `per_bin`. `usual`, their mean over the training rows, is the weight of a row
    whose label is unknown.
    """

    def __init__(self, per_bin: Array, on: Acts, usual: float = 1.0) -> None:
        self.per_bin, self.usual = per_bin, usual
        self.on_loss, self.on_count = on != "count", on != "loss"


class DensityWeights(Weights):
    """The smoothed label density to the power -`power`; see `tailwise.labels.kernels.label_weights`.

    `scale` is ``"mean"``, a mean of 1 over the training rows, or ``"density"``, as the paper prints them.
    """

    def __init__(
        self,
        bins: LabelBins,
        *,
        on: Acts = "loss",
        power: NotNegative = 0.5,
        kernel: Kernel | None = "gaussian",
        bandwidth: Positive = 2.0,
        radius: Radius = 2,
        form: KernelForm = "paper",
        clip: tuple[NotNegative, NotNegative] | None = None,
        scale: Scale = "mean",
    ) -> None:
        self.power, self.form = power, form
        self.window: Window = {"kernel": kernel, "bandwidth": bandwidth, "radius": radius}
        per_bin = label_weights(bins, **self.window, power=power, form=form, clip=clip, scale=scale)
        usual = 1.0 if scale == "mean" else float(bins.counts @ per_bin / bins.counts.sum())
        super().__init__(per_bin, on, usual)


class DenseWeights(Weights):
    """max(1 - `power` p'(y), 1e-6), p' the label density mapped to 0..1 (DenseWeight)."""

    def __init__(self, bins: LabelBins, *, on: Acts = "loss", power: NotNegative = 1.0) -> None:
        self.power = power
        super().__init__(label_weights(bins, power=power, form="dense"), on)


WEIGHTS: dict[str, type[Weights]] = {"density": DensityWeights, "dense": DenseWeights}
"""Weights by name; each is called with the label bins and its options."""
