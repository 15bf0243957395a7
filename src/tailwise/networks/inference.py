"""How rows are predicted whose labels, and so their bins and weights, are unknown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tailwise.distributions.members import Distribution, Mixture

if TYPE_CHECKING:
    from tailwise.networks.tail import Latents, Tail

_LIKELIEST = 8
"""Number of bins that `Marginal` averages over."""


class Inference(ABC):
    """A rule that predicts latent rows without their labels."""

    @abstractmethod
    def __call__(self, tail: Tail, rows: Latents) -> Distribution:
        """Return the distribution of each row's standardised label, (N,).

        ``tail.predict(rows)`` neither weights nor recolours; ``tail.predict(rows, index)`` does so by label
        bins (N,). ``tail.bin_of(prediction)`` are the bins of predicted means, ``tail.bins`` all of them.
        """


class Plain(Inference):
    """No weights and no recolouring, as in the preview code."""

    def __call__(self, tail: Tail, rows: Latents) -> Distribution:
        """Predict once."""
        return tail.predict(rows)


class SelfInference(Inference):
    """Predict like `Plain`, then with the weight of the predicted bin.

    Latents are recoloured by its statistics if the option `at_inference` of smoothing says so.
    """

    def __call__(self, tail: Tail, rows: Latents) -> Distribution:
        """Predict twice."""
        return tail.predict(rows, tail.bin_of(tail.predict(rows)))


class Marginal(Inference):
    """The average over the bins that are likely under a first prediction, each with its weight."""

    def __call__(self, tail: Tail, rows: Latents) -> Distribution:
        """Predict once, then for each likely bin."""
        log_mass = tail.bin_log_mass(tail.predict(rows))  # (B, N)
        top, index = log_mass.topk(min(_LIKELIEST, len(log_mass)), dim=0)  # (K, N)
        likely = len(index)
        prediction = tail.predict(rows.repeated(likely), index.reshape(-1))  # (K N,)
        shares = top.softmax(0)
        return Mixture(prediction.map(lambda p: p.reshape(likely, -1)), shares, check=False)


INFERENCES: dict[str, type[Inference]] = {"plain": Plain, "self": SelfInference, "marginal": Marginal}
"""Rules by name; each is made with its options."""
