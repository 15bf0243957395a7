"""The registry that the command line, benchmarks, docs and contract tests read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from tailwise.labels import LabelBins, nearest
from tailwise.model import Method, TailModel

Uncertainty = Literal["none", "aleatoric", "aleatoric and epistemic"]


@dataclass(frozen=True)
class RegisteredMethod:
    """A method with its name, its parts, what it says about uncertainty, and where it comes from."""

    name: str
    title: str
    parts: Method
    uncertainty: Uncertainty
    about: str


_REGISTRY: dict[str, RegisteredMethod] = {}


def register(
    name: str, *, title: str, parts: Method, uncertainty: Uncertainty = "none", about: str
) -> RegisteredMethod:
    """Add a method under a new name; `about` is one paragraph with its formula and citation."""
    if name in _REGISTRY:
        raise ValueError(f"a method named {name!r} exists already")
    _REGISTRY[name] = RegisteredMethod(name, title, parts, uncertainty, about)
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
    bins: LabelBins,
    *,
    decoder: nn.Module | None = None,
    **options: Any,
) -> TailModel:
    """Put a named method's parts on a backbone; `options` exchange fields of `Method`."""
    parts = get_method(name).parts.with_options(**options)
    return TailModel(backbone, feature_dim, bins, parts, decoder=decoder)
