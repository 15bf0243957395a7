"""A method as a row of parts, and the presets of VIR."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any, Literal

from tailwise.core.labels import LabelBins
from tailwise.core.lookup import nearest
from tailwise.core.theory import choose_bandwidth, kernel_reach
from tailwise.networks.heads import HEADS
from tailwise.networks.latents import LATENTS
from tailwise.networks.losses import OBJECTIVES, PENALTIES, RegularizerForm
from tailwise.networks.perturbations import PERTURBATIONS
from tailwise.networks.smoothing import SmoothingConfig

Reweight = Literal["none", "likelihood", "pseudo-count", "both"]
ElboForm = Literal["sum", "mean"]
Inference = Literal["plain", "self", "marginal"]
INFERENCE = ("plain", "self", "marginal")
_CHOICES: Mapping[str, Iterable[str]] = {
    "reweight": ("none", "likelihood", "pseudo-count", "both"),
    "inference": INFERENCE,
    "latent": LATENTS,
    "latent_mean": ("linear", "identity", "features"),
    "head": HEADS,
    "objective": OBJECTIVES,
    "penalty": PENALTIES,
    "regularizer_form": ("paper", "reference"),
    "elbo": ("sum", "mean"),
    "perturbation": PERTURBATIONS,
}


@dataclass(frozen=True, kw_only=True)
class WeightConfig:
    """How labels are weighted (VIR:weight); the arguments of `tailwise.core.kernels.label_weights`.

    The kernel ``"auto"``, here and in `SmoothingConfig`, is a Gaussian. Its bandwidth and radius follow from
    the label histogram (`tailwise.core.theory.choose_bandwidth`).
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
    """What the weights multiply: each row's loss, the head's pseudo-counts, or both."""
    smoothing: SmoothingConfig | None = None
    latent: str = "point"
    """A name in `tailwise.networks.latents.LATENTS`."""
    latent_dim: int | None = None
    """Size of a Gaussian latent; None is the size of the features."""
    latent_mean: Literal["linear", "identity", "features"] = "linear"
    """Mean of a Gaussian latent: a linear layer that starts at random or as the identity, or the features."""
    latent_var_start: float = -3.0
    """Bias of the variances before training. softplus(-3) is 0.05: the head first learns from the means."""
    head: str = "point"
    head_options: Mapping[str, Any] = field(default_factory=dict)
    objective: str = "squared"
    objective_options: Mapping[str, Any] = field(default_factory=dict)
    penalty: str | None = None
    """A penalty on a batch of latents and labels, such as ``ranksim``."""
    penalty_weight: float = 1.0
    regularizer: float = 0.0
    """lambda of VIR:objective, for heads that return a NIG."""
    regularizer_form: RegularizerForm = "paper"
    kl: float = 0.0
    recon: float = 1.0
    """Weight of VIR:recon where there is a decoder."""
    reconstruct: bool = False
    """Whether the benchmark gives the method a decoder of the input."""
    elbo: ElboForm = "sum"
    """Whether VIR:kl is summed over latent dimensions and VIR:recon over inputs, or both are averaged."""
    decode_features: bool = False
    """Without a decoder of the input, reconstruct the backbone's features."""
    inference: Inference = "plain"
    recolor: bool = False
    """Whether `self` and `marginal` inference also recolour latents, not only weight counts."""
    recolor_predicted: bool = False
    """Whether training recolours a row by the bin of its prediction, as inference does, not of its label."""
    top_bins: int = 8
    """How many of the likeliest bins `marginal` inference averages over."""
    latent_samples: int = 0
    """Number of perturbed latents whose predictions are mixed; 0 predicts from the latent's mean."""
    perturbation: str = "latent"
    """How latents are perturbed: a name in `tailwise.networks.perturbations.PERTURBATIONS`."""
    perturbation_scale: float = 0.1
    """Relative size of the noise, or rate of the dropout."""
    perturbation_layer: str | None = None
    """Perturb the output of this layer of the backbone instead of the latent: its name, or ``middle``."""
    members: int = 1
    """Number of networks that are trained side by side; their predictions are mixed."""
    retrain_from: float | None = None
    """Share of the epochs after which the encoder is frozen and a new head is trained with weights."""
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
            if value not in choices and not (name == "penalty" and value is None):
                raise ValueError(f"unknown {name} {value!r}{nearest(str(value), choices)}")
        for name, kinds in (("weights", WeightConfig), ("smoothing", SmoothingConfig | None)):
            if not isinstance(getattr(self, name), kinds):
                raise ValueError(f"{name} takes a mapping of its options, not {getattr(self, name)!r}")
        for name in ("regularizer", "kl", "recon", "penalty_weight", "perturbation_scale"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)!r}")
        drawn = PERTURBATIONS[self.perturbation](self.perturbation_scale)  # raises if it forbids this scale
        if self.perturbation_layer is not None and not drawn.acts_on(None):
            raise ValueError(
                f"perturbation {self.perturbation!r} acts on the variance of a latent, which a layer lacks: "
                "with perturbation_layer use 'noise' or 'dropout'"
            )
        if self.top_bins < 1 or self.latent_samples < 0 or self.members < 1:
            raise ValueError("top_bins and members must be at least 1, latent_samples at least 0")
        if self.latent_dim is not None and self.latent_dim < 1:
            raise ValueError(
                "latent_dim must be at least 1, or None for the size of the features, "
                f"got {self.latent_dim!r}"
            )
        if self.retrain_from is not None and not 0 <= self.retrain_from < 1:
            raise ValueError(
                f"retrain_from is a share of the epochs and must lie in [0, 1), got {self.retrain_from!r}"
            )

    def with_options(self, **options: Any) -> Method:
        """Return a copy with some fields changed; an unknown name is an error that names the nearest one.

        `weights` and `smoothing` also take a mapping of the fields to change: ``{"weights.power": 1.0}`` is
        short for ``{"weights": {"power": 1.0}}``.
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
                options = {key: {}, **options}  # the old part's options do not apply to the new one
            elif key in options:
                options[key] = {**getattr(self, key), **options[key]}
        return replace(self, **options)

    def for_bins(self, bins: LabelBins) -> Method:
        """Return a copy with the kernel ``"auto"`` replaced by the one for these labels (VIR:bound)."""
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
    reconstruct=True,
    elbo="mean",
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
    recon=1.4,  # its 0.7 multiplies the mean squared error, VIR:recon has half of that
    inference="plain",
    recolor=False,
)
DEFAULT = PAPER.with_options(
    reweight="both",
    smoothing={"bandwidth": 0.64},
    head_options={"sharpness": 1.0, "prior": (0.0, 0.1, 1.5, 0.01)},
    regularizer=0.026,
    kl=2.4e-5,
    reconstruct=False,
    elbo="sum",
    recolor=False,
)
PRESETS = {"default": DEFAULT, "paper": PAPER, "reference": REFERENCE}
