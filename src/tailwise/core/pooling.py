"""One distribution for the predictions of several models."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tailwise.core.distributions import NIG, Distribution, Mixture, Normal, concatenate, stack


def pooled(distributions: Sequence[Distribution]) -> Distribution:
    """Return one distribution for the predictions of several models, of the type that they have.

    Its mean, aleatoric and epistemic variance are those of the mixture of all: the variance between the
    models' means is epistemic, and a part of the only variance of a Normal. Mixtures,
    and NIG of infinite variance, are joined into one mixture.

    >>> both = pooled([NIG(torch.tensor([0.0]), 2.0, 3.0, 4.0), NIG(torch.tensor([2.0]), 2.0, 3.0, 4.0)])
    >>> both.mean.item(), both.aleatoric.item(), both.epistemic.item()
    (1.0, 2.0, 2.0)
    """
    if len(distributions) == 1:
        return distributions[0]
    mixtures = [d for d in distributions if isinstance(d, Mixture)]
    if mixtures:
        components = concatenate([d.components for d in mixtures])
        return Mixture(components, torch.cat([d.weights for d in mixtures]))
    every = stack(distributions)
    between = every.mean.var(0, correction=0)
    if isinstance(every, Normal):
        return Normal(every.mean.mean(0), every.variance.mean(0) + between)
    if not isinstance(every, NIG) or (not torch.compiler.is_compiling() and bool((every.alpha <= 1).any())):
        return Mixture(every)
    aleatoric, epistemic = every.aleatoric.mean(0), every.epistemic.mean(0) + between
    excess = 1 / (1 / (every.alpha - 1)).mean(0)  # the heavier tails count more
    return NIG(every.mean.mean(0), aleatoric / epistemic, 1 + excess, aleatoric * excess)
