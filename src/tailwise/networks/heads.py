"""Latents, from features to latent rows; heads, from these to a distribution on standardised labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tailwise.distributions.members import NIG, Distribution, Normal
from tailwise.labels.bins import LabelBins
from tailwise.options import Between, NotNegative, Positive, Share, Size

Samples = Annotated[int, Between(1, 10_000)]
_FLOOR = 1e-6
LEAST_COUNT = 2.0
"""Least number of pseudo-observations of a row (VIR:G)."""


def positive(raw: Tensor, sharpness: float = 1.0) -> Tensor:
    """Return a softplus plus 1e-6, never 0; a smaller `sharpness` (0.1 in the paper) bends it less."""
    return F.softplus(raw, beta=sharpness) + _FLOOR


# -- latents -------------------------------------------------------------------------------------


class Latent(nn.Module, ABC):
    """Turns features into latent rows of size `dim`."""

    dim: int

    @abstractmethod
    def forward(self, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return mean and variance of each latent row; None is no variance. (N, F) -> (N, dim) each"""


class PointLatent(Latent):
    """The features themselves, without variance."""

    def __init__(self, feature_dim: int) -> None:
        super().__init__()
        self.dim = feature_dim

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """features: (N, F) -> z_mean: (N, F), no variance"""
        return features, None


class GaussianLatent(Latent):
    """A mean and a variance per dimension, two linear maps of the features (VIR:I).

    `dim` is its size, by default that of the features. The mean has a linear layer that starts at random
    (``"linear"``) or as the identity (``"identity"``), or none: with ``"features"`` the features are the
    mean. The bias of the variances starts at `var_start`: softplus(-3) is 0.05, so that the head first learns
    from the means.
    """

    def __init__(
        self,
        feature_dim: int,
        *,
        dim: Size | None = None,
        mean: Literal["linear", "identity", "features"] = "linear",
        var_start: float = -3.0,
    ) -> None:
        super().__init__()
        self.dim = dim or feature_dim
        if mean != "linear" and self.dim != feature_dim:
            raise ValueError(
                f"features of size {feature_dim} cannot be the mean of a latent of size {dim}: leave "
                'latent.dim out, or set latent.mean to "linear"'
            )
        self.mean = nn.Identity() if mean == "features" else nn.Linear(feature_dim, self.dim)
        self.var = nn.Linear(feature_dim, self.dim)
        if isinstance(self.mean, nn.Linear) and mean == "identity":
            nn.init.eye_(self.mean.weight)
            nn.init.zeros_(self.mean.bias)
        nn.init.constant_(self.var.bias, var_start)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """features: (N, F) -> z_mean, z_var: (N, D)"""
        return self.mean(features), positive(self.var(features))


LATENTS: dict[str, type[Latent]] = {"point": PointLatent, "gaussian": GaussianLatent}
"""Latents by name; each is called with the size of the features and its options."""


# -- perturbations -----------------------------------------------------------------------------


class Perturbation(ABC):
    """Perturbs latent rows by each of `samples` draws (D,); predictions of all of them are mixed.

    The draws are made once and are the same for every row, so that neither the size nor the order of a
    batch changes a prediction.
    """

    def __init__(self, *, samples: Samples = 16) -> None:
        self.samples = samples

    def draw(self, dim: int, generator: torch.Generator) -> Tensor:
        """Return one draw per sample, standard normal unless overridden. (samples, dim)"""
        return torch.randn(self.samples, dim, generator=generator)

    @abstractmethod
    def __call__(self, z_mean: Tensor, z_var: Tensor | None, drawn: Tensor) -> Tensor:
        """Return perturbed rows. z_mean, z_var: (N, D), drawn: (D,) -> (N, D)"""


class LatentVariance(Perturbation):
    """Noise of the latent's own variance: a sample of z. A latent without a variance stays as it is."""

    def __call__(self, z_mean: Tensor, z_var: Tensor | None, drawn: Tensor) -> Tensor:
        """z_mean + sqrt(z_var) drawn"""
        return z_mean if z_var is None else z_mean + z_var.sqrt() * drawn


class RelativeNoise(Perturbation):
    """Noise of `scale` times the size (root mean square) of the latent row (Infer-Noise)."""

    def __init__(self, *, samples: Samples = 16, scale: NotNegative = 0.1) -> None:
        super().__init__(samples=samples)
        self.scale = scale

    def __call__(self, z_mean: Tensor, z_var: Tensor | None, drawn: Tensor) -> Tensor:
        """z_mean + scale rms(z_mean) drawn"""
        size = z_mean.pow(2).mean(-1, keepdim=True).sqrt()
        return z_mean + self.scale * size * drawn


class Dropout(Perturbation):
    """Dropout of latent dimensions at the rate `scale` (Infer-Dropout)."""

    def __init__(self, *, samples: Samples = 16, scale: Share = 0.1) -> None:
        super().__init__(samples=samples)
        self.scale = scale

    def draw(self, dim: int, generator: torch.Generator) -> Tensor:
        """Return masks that are 0 or 1 / (1 - scale). (samples, dim)"""
        kept = 1 - self.scale
        return torch.bernoulli(torch.full((self.samples, dim), kept), generator=generator) / kept

    def __call__(self, z_mean: Tensor, z_var: Tensor | None, drawn: Tensor) -> Tensor:
        """z_mean drawn"""
        return z_mean * drawn


PERTURBATIONS: dict[str, type[Perturbation]] = {
    "latent": LatentVariance,
    "noise": RelativeNoise,
    "dropout": Dropout,
}
"""Perturbations by name."""


# -- heads ---------------------------------------------------------------------------------------


def nig_posterior(prior: NIG, n: Tensor, psi: Tensor, phi: Tensor, w: Tensor | None = None) -> NIG:
    """Return the NIG after n observations of mean psi, each counted w times (VIR:posterior).

    n, psi, phi, w: (N,). ``nu = nu0 + w n``, ``gamma = (gamma0 nu0 + w n psi) / nu``,
    ``alpha = alpha0 + w n / 2`` and ``beta = beta0 + gamma0^2 nu0 / 2 + phi``.

    >>> one = torch.ones(1)
    >>> belief = nig_posterior(NIG(0.0, 1.0, 1.5, 1.0), n=3 * one, psi=4 * one, phi=one)
    >>> [p.item() for p in belief.parameters]
    [3.0, 4.0, 3.0, 2.0]
    """
    gamma0, nu0, alpha0, beta0 = (p.to(n) for p in prior.parameters)
    counted = n if w is None else w.to(n) * n
    nu = nu0 + counted
    return NIG(
        gamma=(gamma0 * nu0 + counted * psi) / nu,
        nu=nu,
        alpha=alpha0 + counted / 2,
        beta=beta0 + gamma0**2 * nu0 / 2 + phi,
    )


class Head(nn.Module, ABC):
    """Turns latent rows into a distribution on standardised labels, by one `linear` layer.

    A head is made with the size of the latent, the label bins and its options.
    """

    linear: nn.Module
    location_rows: slice = slice(0, 1)
    """Rows of the linear layer that give locations."""

    scalable: ClassVar[bool] = True
    """Whether factors on its uncertainty can be fitted on held-out rows (VIR:calibrate)."""

    averaged: ClassVar[bool] = False
    """Whether predictions of members that share a backbone are averaged, not mixed."""

    def moved(self, prediction: Distribution, base: Tensor) -> Distribution:
        """Return a prediction of this head, moved to the base's (VIR:offset). base: (N,)"""
        return prediction.rescale(base, 1.0)

    @abstractmethod
    def forward(self, z: Tensor, w: Tensor | None = None) -> Distribution:
        """Return one distribution per row; w are the rows' weights. z: (N, D), w: (N,) -> (N,)"""

    @torch.no_grad()
    def start_at_zero(self) -> None:
        """Set the location to 0 for every input, so that training starts at the base (VIR:offset)."""
        for head in (part for part in self.modules() if isinstance(part, Head) and hasattr(part, "linear")):
            for parameter, dims in ((head.linear.weight, 2), (head.linear.bias, 1)):
                cast("Tensor", parameter).movedim(-dims, 0)[head.location_rows].zero_()


class PointHead(Head):
    """One number per row. Its variance is a constant: 1 until calibration sets it."""

    averaged = True

    def __init__(self, dim: int, bins: LabelBins) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, 1)

    def forward(self, z: Tensor, w: Tensor | None = None) -> Distribution:
        """z: (N, D) -> Normal (N,)"""
        mean = self.linear(z).squeeze(-1)
        return Normal(mean, torch.ones_like(mean))


class GaussianHead(Head):
    """Mean and variance per row, for Gaussian likelihoods and the members of a deep ensemble."""

    def __init__(self, dim: int, bins: LabelBins) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, 2)

    def forward(self, z: Tensor, w: Tensor | None = None) -> Distribution:
        """z: (N, D) -> Normal (N,)"""
        mean, raw = self.linear(z).unbind(-1)
        return Normal(mean, positive(raw))


class EvidentialHead(Head):
    """The four parameters of a NIG per row, as in deep evidential regression (DER).

    `min_alpha` is 1.5 in the paper's experiments and 1 in DER itself.
    """

    def __init__(
        self, dim: int, bins: LabelBins, *, sharpness: Positive = 1.0, min_alpha: NotNegative = 1.5
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, 4)
        self.sharpness, self.min_alpha = sharpness, min_alpha

    def forward(self, z: Tensor, w: Tensor | None = None) -> Distribution:
        """z: (N, D) -> NIG (N,)"""
        return self.belief(self.linear(z), self.sharpness, self.min_alpha)

    @staticmethod
    def belief(raw: Tensor, sharpness: float, min_alpha: float) -> NIG:
        """Return the NIG of four unbounded numbers per row. (N, 4) -> (N,)"""
        gamma, nu, alpha, beta = raw.unbind(-1)
        return NIG(
            gamma, positive(nu, sharpness), min_alpha + positive(alpha, sharpness), positive(beta, sharpness)
        )


class PseudoCountHead(Head):
    """Pseudo-observations (n, psi, phi) per row, turned into a NIG with n counted w times (VIR:G).

    `prior` is (gamma0, nu0, alpha0, beta0) on standardised labels. The location starts at exactly 0
    (`start_at_zero`) only if gamma0 is 0.
    """

    location_rows = slice(1, 2)

    def __init__(
        self,
        dim: int,
        bins: LabelBins,
        *,
        prior: tuple[float, NotNegative, NotNegative, NotNegative] = (0.0, 0.1, 1.5, 0.01),
        sharpness: Positive = 1.0,
    ) -> None:
        super().__init__()
        self._prior = nn.Buffer(torch.tensor(prior), persistent=False)
        self.linear = nn.Linear(dim, 3)
        self.sharpness = sharpness

    @property
    def prior(self) -> NIG:
        """The prior NIG, on standardised labels."""
        return NIG(*self._prior.unbind())

    def forward(self, z: Tensor, w: Tensor | None = None) -> Distribution:
        """z: (N, D), w: (N,) -> NIG (N,)"""
        raw_n, psi, raw_phi = self.linear(z).unbind(-1)
        n = LEAST_COUNT + positive(raw_n, self.sharpness)
        return nig_posterior(self.prior, n, psi, positive(raw_phi, self.sharpness), w)


class MemberLinear(nn.Module):
    """One linear layer per member; input rows belong to member 0, 1, ... in turn."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([layer.weight.detach() for layer in layers]))
        self.bias = None
        if layers[0].bias is not None:
            self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]))

    def reset_parameters(self) -> None:
        """Draw every member's weights as `nn.Linear` does."""
        bound = self.weight.shape[-1] ** -0.5
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, rows: Tensor) -> Tensor:
        """rows: (N * members, in) -> (N * members, out)"""
        by_member = rows.unflatten(0, (-1, len(self.weight))).transpose(0, 1)  # (members, N, in)
        out: Tensor = by_member @ self.weight.mT
        if self.bias is not None:
            out = out + self.bias.unsqueeze(1)
        return out.transpose(0, 1).flatten(0, 1)


def side_by_side(parts: Sequence[nn.Module]) -> nn.Module:
    """Return one module that applies each member's part to the rows of that member."""
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, nn.Linear):
        return MemberLinear([cast("nn.Linear", part) for part in parts])
    if any(True for _ in first.parameters(recurse=False)):
        raise ValueError(
            f"{type(first).__name__} has weights outside linear layers, which cannot differ between members: "
            "choose a backbone without members"
        )
    for name, _ in first.named_children():
        setattr(first, name, side_by_side([part.get_submodule(name) for part in parts]))
    return first


HEADS: dict[str, type[Head]] = {
    "point": PointHead,
    "gaussian": GaussianHead,
    "evidential": EvidentialHead,
    "pseudo-count": PseudoCountHead,
}
"""Heads by name."""
