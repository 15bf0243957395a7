"""A method as a row of parts, and the presets of VIR."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any, Literal

from tailwise.core.labels import LabelBins
from tailwise.core.lookup import nearest
from tailwise.core.theory import choose_bandwidth, kernel_reach
from tailwise.networks.heads import HEADS
from tailwise.networks.losses import OBJECTIVES, PENALTIES, RegularizerForm
from tailwise.networks.smoothing import SmoothingConfig

Reweight = Literal["none", "likelihood", "pseudo-count", "both"]
Inference = Literal["plain", "self", "marginal"]
Perturbation = Literal["latent", "noise", "dropout"]
INFERENCE = ("plain", "self", "marginal")
_CHOICES = {
    "reweight": ("none", "likelihood", "pseudo-count", "both"),
    "inference": INFERENCE,
    "latent": ("point", "gaussian"),
    "latent_mean": ("linear", "features"),
    "regularizer_form": ("paper", "reference"),
    "perturbation": ("latent", "noise", "dropout"),
}


@dataclass(frozen=True, kw_only=True)
class WeightConfig:
    """How labels are weighted (VIR:weight); the arguments of `tailwise.core.kernels.label_weights`.

    The kernel ``"auto"``, here and in `SmoothingConfig`, is a Gaussian whose bandwidth (and radius)
    `tailwise.core.theory.choose_bandwidth` takes from the label histogram.
    """

    kernel: str | None = "gaussian"
    bandwidth: float = 2.0
    radius: int = 2
    power: float = 0.5
    form: str = "paper"
    clip: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method as a row of parts: what differs between VIR, its ablations and every baseline."""

    weights: WeightConfig = field(default_factory=WeightConfig)
    reweight: Reweight = "none"
    """What the weights act on: each row's loss, the head's pseudo-counts, or both."""
    smoothing: SmoothingConfig | None = None
    latent: Literal["point", "gaussian"] = "point"
    latent_dim: int | None = None
    """Size of a Gaussian latent; as wide as the features unless given."""
    latent_mean: Literal["linear", "features"] = "linear"
    """What its mean is: a linear layer of the features, or the features as they are."""
    head: str = "point"
    head_options: Mapping[str, Any] = field(default_factory=dict)
    objective: str = "squared"
    objective_options: Mapping[str, Any] = field(default_factory=dict)
    penalty: str | None = None
    """A penalty on a batch of latents and labels, such as ``ranksim``."""
    penalty_weight: float = 1.0
    regularizer: float = 0.0
    """lambda of VIR:objective, for heads that claim evidence."""
    regularizer_form: RegularizerForm = "paper"
    kl: float = 0.0
    recon: float = 1.0
    """Weight of VIR:recon where there is a decoder."""
    decode_features: bool = False
    """Without a decoder of the input, reconstruct the backbone's features."""
    inference: Inference = "plain"
    recolor: bool = False
    """Whether `self` and `marginal` inference recolour latents, besides weighting counts."""
    top_bins: int = 8
    """How many of the likeliest bins `marginal` inference averages over."""
    latent_samples: int = 0
    """Perturbed latents to average over at inference; 0 takes the latent's mean."""
    perturbation: Perturbation = "latent"
    """What perturbs them: the latent's own variance, noise relative to its size, or dropout."""
    perturbation_scale: float = 0.1
    """Relative size of the noise, or the rate of dropout."""
    members: int = 1
    """Networks trained side by side whose predictions are mixed."""
    retrain_from: float | None = None
    """Share of the epochs after which the encoder is frozen and a new head trained, with weights."""
    resampling: str | None = None
    """How training rows are resampled before training; see `tailwise.resampling.smogn`."""

    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(part.default, (int, float)) and not isinstance(value, Real):
                kind = "true or false" if isinstance(part.default, bool) else "a number"
                raise ValueError(f"{part.name} must be {kind}, got {value!r}")
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"unknown {name} {value!r}{nearest(str(value), choices)}")
        for name, registry in (("head", HEADS), ("objective", OBJECTIVES), ("penalty", PENALTIES)):
            value = getattr(self, name)
            if value is not None and value not in registry:
                raise ValueError(f"unknown {name} {value!r}{nearest(str(value), registry)}")
        for name, kinds in (("weights", WeightConfig), ("smoothing", SmoothingConfig | None)):
            if not isinstance(getattr(self, name), kinds):
                raise ValueError(f"{name} takes a mapping of its options, not {getattr(self, name)!r}")
        for name in ("regularizer", "kl", "recon", "penalty_weight", "perturbation_scale"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)!r}")
        if self.perturbation == "dropout" and self.perturbation_scale >= 1:
            raise ValueError(
                f"a rate of dropout lies below 1, perturbation_scale is {self.perturbation_scale!r}"
            )
        if self.top_bins < 1 or self.latent_samples < 0 or self.members < 1:
            raise ValueError("top_bins and members must be at least 1, latent_samples at least 0")
        if self.latent_dim is not None and self.latent_dim < 1:
            raise ValueError(
                f"latent_dim must be at least 1, or None for that of the features, got {self.latent_dim!r}"
            )
        if self.retrain_from is not None and not 0 <= self.retrain_from < 1:
            raise ValueError(
                f"retrain_from is a share of the epochs, from 0 to below 1, got {self.retrain_from!r}"
            )

    def with_options(self, **options: Any) -> Method:
        """Return a copy with some parts exchanged; an unknown name is an error naming the nearest.

        `weights` and `smoothing` also take a mapping of the fields to change; ``{"weights.power": 1.0}`` is
        the same as ``{"weights": {"power": 1.0}}``.
        """
        options = _nested(options)
        known = {f.name for f in fields(self)}
        for name, value in options.items():
            if name not in known:
                raise ValueError(f"unknown option {name!r}{nearest(name, known)}")
            if isinstance(value, Mapping) and name in ("weights", "smoothing"):
                part = getattr(self, name) or SmoothingConfig()
                parts = {f.name for f in fields(part)}
                for key in value:
                    if key not in parts:
                        raise ValueError(f"unknown option {key!r} of {name}{nearest(key, parts)}")
                options = {**options, name: replace(part, **value)}
        for part in ("head", "objective"):
            key = f"{part}_options"
            if options.get(part, getattr(self, part)) != getattr(self, part):
                options = {key: {}, **options}  # those of the old one mean nothing to the new one
            elif key in options:
                options[key] = {**getattr(self, key), **options[key]}
        return replace(self, **options)

    def for_bins(self, bins: LabelBins) -> Method:
        """Return a copy in which the kernel ``"auto"`` is what these labels ask for (VIR:bound)."""
        chosen: dict[str, Any] = {}
        for name in ("weights", "smoothing"):
            part = getattr(self, name)
            if part is not None and part.kernel == "auto":
                h = choose_bandwidth(bins)
                chosen[name] = {"kernel": "gaussian", "bandwidth": h, "radius": kernel_reach(h)}
        return self.with_options(**chosen) if chosen else self


def _nested(options: Mapping[str, Any]) -> dict[str, Any]:
    """Turn ``{"weights.power": 1.0}`` into ``{"weights": {"power": 1.0}}``."""
    deep = {name: value for name, value in options.items() if "." not in name}
    for name, value in options.items():
        part, dot, key = name.partition(".")
        if dot and part in options:
            raise ValueError(f"give {part} or {name}, not both")
        if dot:
            deep[part] = {**deep.get(part, {}), key: value}
    return deep


PAPER = Method(
    reweight="pseudo-count",
    smoothing=SmoothingConfig(),
    latent="gaussian",
    head="pseudo-count",
    head_options={"sharpness": 0.1, "prior": (0.0, 1.0, 1.5, 1.0)},
    objective="nll",
    regularizer=0.1,
    kl=1.0,
    inference="self",
    recolor=True,
)
REFERENCE = PAPER.with_options(
    weights={"form": "reference"},
    smoothing={"form": "reference", "boundary": "reflect"},
    head_options={"prior": (0.0, 0.0, 0.3, 0.0)},
    regularizer=0.01,
    regularizer_form="reference",
    kl=0.0,
    inference="plain",
    recolor=False,
)
DEFAULT = PAPER.with_options(
    reweight="both",
    smoothing={"bandwidth": 0.64},
    head_options={"sharpness": 1.0, "prior": (0.0, 0.1, 1.5, 0.01)},
    regularizer=0.026,
    kl=2.4e-5,
    recolor=False,
)
PRESETS = {"default": DEFAULT, "paper": PAPER, "reference": REFERENCE}
