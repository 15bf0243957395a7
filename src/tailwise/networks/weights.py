"""Weights of rows by the rarity of their labels (VIR:weight), and what they multiply."""

from __future__ import annotations

from typing import Annotated, Literal

from tailwise.labels.bins import Array, LabelBins
from tailwise.labels.kernels import KernelForm, Window, label_weights
from tailwise.options import Between, NotNegative, Positive

Acts = Literal["loss", "count", "both"]
"""Weights multiply the losses of a row, the pseudo-counts of its head, or both."""
Kernel = Literal["gaussian", "laplacian", "triangular"]
Radius = Annotated[int, Between(0, 10_000)]


class Weights:
    """One weight per label bin, `per_bin`, with a mean of 1 over the training rows."""

    def __init__(self, per_bin: Array, on: Acts) -> None:
        self.per_bin = per_bin
        self.on_loss, self.on_count = on != "count", on != "loss"


class DensityWeights(Weights):
    """The smoothed label density to the power -`power`; see `tailwise.labels.kernels.label_weights`."""

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
    ) -> None:
        self.power, self.form = power, form
        self.window: Window = {"kernel": kernel, "bandwidth": bandwidth, "radius": radius}
        super().__init__(label_weights(bins, **self.window, power=power, form=form, clip=clip), on)


class DenseWeights(Weights):
    """max(1 - `power` p'(y), 1e-6), p' the label density mapped to 0..1 (DenseWeight)."""

    def __init__(self, bins: LabelBins, *, on: Acts = "loss", power: NotNegative = 1.0) -> None:
        self.power = power
        super().__init__(label_weights(bins, power=power, form="dense"), on)


WEIGHTS: dict[str, type[Weights]] = {"density": DensityWeights, "dense": DenseWeights}
"""Weights by name; each is called with the label bins and its options."""
