"""A method as a row of parts with options; weights of rows and stages of training are among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from tailwise.labels.bins import Array, LabelBins
from tailwise.labels.kernels import KernelForm, Scale, Window, label_weights
from tailwise.lookup import check_name, nearest
from tailwise.networks.heads import HEADS, LATENTS, PERTURBATIONS
from tailwise.networks.losses import LOSSES, Loss
from tailwise.networks.smoothing import SMOOTHINGS, Kernel, LatentSmoother, Radius
from tailwise.networks.tail import INFERENCES
from tailwise.options import Between, NotNegative, Positive, Share, checked_options, checked_value
from tailwise.resampling.smogn import RESAMPLERS

Acts = Literal["loss", "count", "both"]
"""Weights multiply the losses of a row, the pseudo-counts of its head, or both."""


@dataclass(frozen=True)
class Weights:
    """One weight per label bin, by the rarity of its labels (VIR:weight), and what the weights multiply."""

    per_bin: Array
    on: Acts
    usual: float = 1.0
    """The mean over the training rows, which is the weight of a row whose label is unknown."""


def density_weights(
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
) -> Weights:
    """The smoothed label density to the power -`power`; see `tailwise.labels.kernels.label_weights`.

    `scale` is ``"mean"``, a mean of 1 over the training rows, or ``"density"``, as the paper prints them.
    """
    window: Window = {"kernel": kernel, "bandwidth": bandwidth, "radius": radius}
    per_bin = label_weights(bins, **window, power=power, form=form, clip=clip, scale=scale)
    usual = 1.0 if scale == "mean" else float(bins.counts @ per_bin / bins.counts.sum())
    return Weights(per_bin, on, usual)


def dense_weights(bins: LabelBins, *, on: Acts = "loss", power: NotNegative = 1.0) -> Weights:
    """max(1 - `power` p'(y), 1e-6), p' the label density mapped to 0..1 (DenseWeight)."""
    return Weights(label_weights(bins, power=power, form="dense"), on)


WEIGHTS: dict[str, Callable[..., Weights]] = {"density": density_weights, "dense": dense_weights}
"""Weights by name; each is called with the label bins and its options."""


# -- stages and steps of training ----------------------------------------------------------------


class Retrain:
    """Training in two stages: in the second, the backbone is frozen and a new head is trained.

    The second stage begins after the share `start` of the epochs. Label weights multiply losses in it only
    (Kang et al., ICLR 2020).
    """

    latents_first: ClassVar[bool] = False
    """Whether the first stage has the losses of latents only, and the second the others."""

    def __init__(self, *, start: Share = 0.5) -> None:
        self.start = start

    def begins(self, progress: float) -> bool:
        """Whether the second stage begins after this share of the epochs."""
        return progress >= self.start


class Pretrain(Retrain):
    """Training in two stages: first the backbone, by the losses that read latents only, then a head on it.

    The second stage begins after the share `start` of the epochs. The backbone is then frozen.
    """

    latents_first = True


SCHEDULES: dict[str, type[Retrain]] = {"retrain": Retrain, "pretrain": Pretrain}
"""Schedules by name; each is made with its options."""


class SharpnessAware:
    """Weights move by rho g / |g| before the gradient of a step is taken (BSAM:step).

    g is the gradient of the same loss, label weights included. With weights that balance labels, the loss is
    then flat for rare labels as well. Each step costs two.
    """

    def __init__(self, *, rho: Positive = 0.2) -> None:
        self.rho = rho

    @contextmanager
    def perturbed(self, model: nn.Module) -> Iterator[None]:
        """Move the weights along their gradients while inside; what the network records of its rows
        ends as it began.

        In a training loop of one's own: compute gradients, compute them again inside, then let the optimiser
        step.
        """
        moved = [p for p in model.parameters() if p.grad is not None]
        weights = [p.detach().clone() for p in moved]
        recorded = [tensor.clone() for tensor in _recorded(model)]
        with torch.no_grad():
            gradients = [p.grad for p in moved if p.grad is not None]
            norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in gradients]))
            scale = self.rho / norm.clamp_min(torch.finfo(norm.dtype).tiny)
            for p, g in zip(moved, gradients, strict=True):
                p.add_(g * scale)
        try:
            yield
        finally:
            with torch.no_grad():
                for now, before in zip([*moved, *_recorded(model)], [*weights, *recorded], strict=True):
                    now.copy_(before)


def _recorded(model: nn.Module) -> list[Tensor]:
    """Return what a forward pass changes: buffers, and the sums of latent statistics, which are none."""
    smoothers = [module for module in model.modules() if isinstance(module, LatentSmoother)]
    return [*model.buffers(), *(smoother.sums for smoother in smoothers)]


SHARPNESS: dict[str, type[SharpnessAware]] = {"sam": SharpnessAware}
"""Perturbations of weights by name; each is made with its options."""


# -- methods -------------------------------------------------------------------------------------


REGISTRIES: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "weights": WEIGHTS,
    "smoothing": SMOOTHINGS,
    "latent": LATENTS,
    "head": HEADS,
    "losses": LOSSES,
    "inference": INFERENCES,
    "perturbation": PERTURBATIONS,
    "schedule": SCHEDULES,
    "sharpness": SHARPNESS,
}
"""The classes of each part by name. Keyword-only arguments of their constructors are the options."""


@dataclass(frozen=True)
class Part:
    """A part of a method: the name of its class in a registry, and options of that class.

    >>> Part("density", power=0.25).options
    {'power': 0.25}
    """

    name: str
    options: Mapping[str, Any]

    def __init__(self, name: str, /, **options: Any) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "options", options)


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method as a row of parts: what differs between VIR, its ablations and every baseline.

    The options of every part are checked against its class, and completed by the class's defaults.
    """

    weights: Part | None = None
    """How rows are weighted by the rarity of their labels (VIR:weight), and what the weights multiply."""
    smoothing: Part | None = None
    """How latents are smoothed over label bins (VIR:A, VIR:S, VIR:F)."""
    latent: Part = Part("point")
    head: Part = Part("point")
    losses: tuple[Part, ...] = (Part("squared"),)
    """What is minimised: the sum of these, each times its option `weight` (VIR:objective)."""
    inference: Part = Part("plain")
    """How rows without labels are predicted."""
    perturbation: Part | None = None
    """How latents are perturbed at prediction; the predictions of all samples are mixed."""
    schedule: Part | None = None
    """Stages of training; None is one stage."""
    sharpness: Part | None = None
    """How weights are perturbed before the gradient of a step; None does not perturb them."""
    resampling: str | None = None
    """How training rows are resampled before training: a name in `tailwise.resampling.smogn.RESAMPLERS`."""
    members: int = 1
    """Number of networks that are trained side by side; their predictions are mixed."""

    def __post_init__(self) -> None:
        for kind in REGISTRIES:
            if kind != "losses":
                part = getattr(self, kind)
                optional = Method.__dataclass_fields__[kind].default is None
                object.__setattr__(self, kind, None if part is None and optional else checked(kind, part))
        losses = tuple(checked("losses", loss) for loss in self.losses)
        if not losses or len({loss.name for loss in losses}) < len(losses):
            raise ValueError("a method needs at least one loss, and each only once")
        object.__setattr__(self, "losses", losses)
        if self.resampling is not None:
            check_name("resampling", self.resampling, RESAMPLERS)
        checked_value("members", self.members, Annotated[int, Between(1, 1000)])

    def with_options(self, **options: Any) -> Method:
        """Return a copy with other parts or options; an unknown name is an error that names the nearest one.

        A key is a field, or a part's option with a dot: ``{"weights.power": 1.0}``. A loss goes by its name:
        ``{"evidence.weight": 0.1}`` changes it, or adds it; ``{"evidence": None}`` leaves it out. The value
        of a field is a name (options stay if the part has it already), a mapping of options, a `Part`, or
        None; that of `losses` is a list of names.

        >>> parts = Method().with_options(
        ...     **{"losses": ["absolute"], "weights.power": 1.0, "latent": "gaussian"}
        ... )
        >>> parts.losses[0].name, parts.weights.options["power"], parts.latent.options["var_start"]
        ('absolute', 1.0, -3.0)
        """
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        losses: dict[str, Part | None] = {loss.name: loss for loss in self.losses}
        # Whole parts come before single options of them.
        for key in sorted(options, key=lambda key: ("." in key, key != "losses")):
            value, (name, dot, option) = options[key], key.partition(".")
            value = {option: value} if dot else value
            if key == "losses":
                for loss in value:
                    check_name("loss", loss, LOSSES)
                losses = {loss: losses.get(loss) or Part(loss) for loss in value}
            elif name in LOSSES:
                losses[name] = _changed("losses", losses.get(name) or Part(name), value)
            elif name in REGISTRIES and name != "losses":
                values[name] = _changed(name, values[name], value)
            elif key in values:
                values[key] = value
            else:
                choices = [*values, *LOSSES, *self.as_options()]
                raise ValueError(f"unknown option {key!r}{nearest(key, choices)}")
        return Method(**{**values, "losses": tuple(part for part in losses.values() if part is not None)})

    def as_options(self) -> dict[str, Any]:
        """Return all parts and options as `with_options` takes them, in values that JSON has.

        >>> Method().as_options()["losses"], Method().as_options()["squared.weight"]
        (['squared'], 1.0)
        """
        row: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "losses":
                row["losses"] = [loss.name for loss in value]
                parts = {loss.name: loss for loss in value}
            else:
                row[field.name] = value.name if isinstance(value, Part) else value
                parts = {field.name: value} if isinstance(value, Part) else {}
            row |= {
                f"{name}.{option}": of for name, part in parts.items() for option, of in part.options.items()
            }
        return row

    def make(self, kind: str, *context: Any) -> Any:
        """Return an instance of a part's class, or None without the part; `context` precedes the options."""
        part = getattr(self, kind)
        return None if part is None else made(kind, part, *context)

    def make_losses(self, dim: int, bins: LabelBins, members: int) -> dict[str, list[Loss]]:
        """Return each loss by name; those that collect by epoch once for each member."""
        return {
            part.name: [
                made("losses", part, dim, bins) for _ in range(members if LOSSES[part.name].by_epoch else 1)
            ]
            for part in self.losses
        }

    def loss(self, name: str) -> Part | None:
        """Return a loss by name, or None if the method does not have it."""
        return next((loss for loss in self.losses if loss.name == name), None)


def checked(kind: str, part: Any) -> Part:
    """Return a part, or the part of a name, whose options are checked and complete."""
    if isinstance(part, str):
        part = Part(part)
    if not isinstance(part, Part):
        raise ValueError(f"{kind} must be a part such as {next(iter(REGISTRIES[kind]))!r}, got {part!r}")
    word = "loss" if kind == "losses" else kind
    check_name(word, part.name, REGISTRIES[kind])
    path = part.name if kind == "losses" else kind
    maker = REGISTRIES[kind][part.name]
    also = {"weight": (NotNegative, LOSSES[part.name].weight)} if kind == "losses" else {}
    return Part(part.name, **checked_options(f"{word} {part.name!r}", path, maker, part.options, also))


def made(kind: str, part: Part, *context: Any) -> Any:
    """Return an instance of a part's class; `context` comes before the options."""
    options = dict(part.options)
    weight = options.pop("weight", None) if kind == "losses" else None
    instance = REGISTRIES[kind][part.name](*context, **options)
    if weight is not None:
        instance.weight = weight
    return instance


def _changed(kind: str, part: Part | None, value: Any) -> Part | None:
    """Return a part with other options, or another part."""
    if value is None or isinstance(value, Part):
        return value
    if isinstance(value, str):
        return part if part is not None and part.name == value else Part(value)
    if isinstance(value, Mapping):
        part = part or Part(next(iter(REGISTRIES[kind])))
        return Part(part.name, **{**part.options, **value})
    where = part.name if kind == "losses" and part is not None else kind
    raise ValueError(f"{where} takes a name or a mapping of its options, not {value!r}")
