"""The registry of methods, which the command line, benchmarks, docs and tests read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from tailwise.labels.bins import LabelBins
from tailwise.lookup import nearest
from tailwise.networks.network import Network, warn_without_decoder
from tailwise.networks.parts import Method

Uncertainty = Literal["none", "aleatoric", "aleatoric and epistemic"]
Variance = Literal["total", "epistemic"]


@dataclass(frozen=True)
class RegisteredMethod:
    """A method: its name, its parts, the kind of uncertainty it predicts, and its source."""

    name: str
    title: str
    parts: Method
    uncertainty: Uncertainty
    about: str
    group: str = ""
    """Methods of one group are compared together, by its name."""
    variance: Variance = "total"
    """The variance that its authors report; comparisons score it by this one where no likelihood is meant."""


_REGISTRY: dict[str, RegisteredMethod] = {}


def register(
    name: str,
    *,
    title: str,
    parts: Method,
    uncertainty: Uncertainty = "none",
    about: str,
    group: str = "",
    variance: Variance = "total",
) -> RegisteredMethod:
    """Add a method under a new name; `about` is one paragraph with its formula and citation.

    Of a method that has a module of its own, it is the docstring of the module.
    """
    if name in _REGISTRY:
        raise ValueError(f"a method named {name!r} is already registered")
    paragraph = " ".join((about or "").split())
    _REGISTRY[name] = RegisteredMethod(name, title, parts, uncertainty, paragraph, group, variance)
    return _REGISTRY[name]


def available_methods() -> list[str]:
    """Return the names of all methods, in the order of the table.

    >>> "vir" in available_methods()
    True
    """
    return list(_REGISTRY)


def get_method(name: str) -> RegisteredMethod:
    """Find a method by name; an unknown name is an error that names the nearest one."""
    if name not in _REGISTRY:
        raise ValueError(f"unknown method {name!r}{nearest(name, _REGISTRY)}")
    return _REGISTRY[name]


def build_model(
    name: str,
    backbone: nn.Module,
    feature_dim: int,
    bins: LabelBins | Sequence[LabelBins],
    *,
    decoder: nn.Module | None = None,
    offset: bool = False,
    **options: Any,
) -> Network:
    """Return a network with a named method's parts on a backbone; `options` are those of
    `Method.with_options`, `decoder` reconstructs inputs from latents where the method does that (VIR:recon).

    With a sequence of bins, one for each target, labels and predictions are (N, T). With ``offset=True`` the
    network predicts around a base prediction (VIR:offset): `loss`, a call, `tailwise.training.loop.fit` and
    `predict` then take it as `offset`, in label units, and before training the predicted mean is the base.
    """
    method = get_method(name).parts.with_options(**options)
    warn_without_decoder(method, decoder)
    return Network(backbone, feature_dim, bins, method, decoder=decoder, offset=offset)
