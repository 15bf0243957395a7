"""The registry of methods, which the command line, benchmarks, docs and tests read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from torch import nn

from tailwise.labels.bins import LabelBins
from tailwise.lookup import nearest
from tailwise.networks.network import Network
from tailwise.networks.parts import Method

Uncertainty = Literal["none", "aleatoric", "aleatoric and epistemic"]


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high` to search, evenly on a log scale unless `log` is False.

    `default` is tried first; `register` sets it to the value in the method's parts.
    """

    low: float
    high: float
    log: bool = True
    default: float | None = None

    def __post_init__(self) -> None:
        least = self.low if self.default is None else self.default
        if not (self.low <= least <= self.high and (self.low > 0 or not self.log)):
            raise ValueError(f"a range needs low <= default <= high, and low > 0 if log, got {self}")


Space = Mapping[str, tuple[Any, ...] | Range]
"""Options to search, such as ``weights.power``: a range, or values with the default first."""


def _with_defaults(parts: Method, space: Space) -> Space:
    """Return the space with the values in `parts` as its defaults."""
    options, found = parts.as_options(), dict[str, tuple[Any, ...] | Range]()
    for name, of in space.items():
        if name not in options:
            raise ValueError(f"cannot search {name!r}: the method's parts have no such option")
        value = options[name]
        if isinstance(of, Range):
            found[name] = replace(of, default=value)
        else:
            found[name] = (value, *(other for other in of if other != value))
    return found


@dataclass(frozen=True)
class RegisteredMethod:
    """A method: its name, its parts, the kind of uncertainty it predicts, and its source."""

    name: str
    title: str
    parts: Method
    uncertainty: Uncertainty
    about: str
    search: Space = field(default_factory=dict)
    """Options to tune on every data set."""
    explore: Space = field(default_factory=dict)
    """Further options whose defaults were chosen on development data."""


_REGISTRY: dict[str, RegisteredMethod] = {}


def register(
    name: str,
    *,
    title: str,
    parts: Method,
    uncertainty: Uncertainty = "none",
    about: str,
    search: Space | None = None,
    explore: Space | None = None,
) -> RegisteredMethod:
    """Add a method under a new name; `about` is one paragraph with its formula and citation.

    `search` lists the options to tune, such as ``{"weights.power": Range(0.0, 1.0, log=False)}``: each with
    a range, or with values to try besides the one in `parts`.
    """
    if name in _REGISTRY:
        raise ValueError(f"a method named {name!r} is already registered")
    spaces = (_with_defaults(parts, space or {}) for space in (search, explore))
    _REGISTRY[name] = RegisteredMethod(name, title, parts, uncertainty, about, *spaces)
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
    `Method.with_options`.

    With a sequence of bins, one for each target, labels and predictions are (N, T). With ``offset=True`` the
    network predicts around a base prediction (VIR:offset): `loss`, a call, `tailwise.training.loop.fit` and
    `predict` then take it as `offset`, in label units, and before training the predicted mean is the base.
    """
    method = get_method(name).parts.with_options(**options)
    return Network(backbone, feature_dim, bins, method, decoder=decoder, offset=offset)
