"""What every predictive distribution offers, and what those given by parameter tensors share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

Number = float | Tensor


class Distribution(ABC):
    """A predictive distribution for each element of a tensor of any shape."""

    @property
    @abstractmethod
    def mean(self) -> Tensor:
        """Expected label."""

    @property
    @abstractmethod
    def variance(self) -> Tensor:
        """Total variance, aleatoric plus epistemic, in squared label units."""

    @property
    @abstractmethod
    def aleatoric(self) -> Tensor:
        """Variance from noise in the label, which more data would not remove."""

    @property
    @abstractmethod
    def epistemic(self) -> Tensor:
        """Variance from not knowing the label's mean, which more data would remove."""

    @abstractmethod
    def nll(self, y: Number) -> Tensor:
        """Negative log-density at y, per element. Differentiable."""

    @abstractmethod
    def cdf(self, y: Number) -> Tensor:
        """Probability of a label of at most y."""

    @abstractmethod
    def quantile(self, q: Number) -> Tensor:
        """Label that is exceeded with probability 1 - q; q broadcasts against the parameters."""

    @abstractmethod
    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n labels for each element. (n, *shape)"""

    @abstractmethod
    def rescale(self, shift: Number, scale: Number) -> Self:
        """Distribution of ``scale * Y + shift``; scale must not be 0."""

    @abstractmethod
    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Apply a function (slice, reshape, move, cast) to every parameter tensor."""

    @property
    def std(self) -> Tensor:
        """Total standard deviation, in label units."""
        return self.variance.sqrt()

    @property
    def median(self) -> Tensor:
        """Label that is exceeded with probability 1/2."""
        return self.quantile(0.5)

    @property
    def point(self) -> Tensor:
        """The one label to predict: the mean, unless a kind of distribution has a better one."""
        return self.mean

    @property
    def shape(self) -> torch.Size:
        """Shape of the predictions."""
        return self.mean.shape

    def interval(self, coverage: float = 0.9) -> tuple[Tensor, Tensor]:
        """Return both ends of the central interval that covers the label with the given probability."""
        tail = (1 - checked_coverage(coverage)) / 2
        return self.quantile(tail), self.quantile(1 - tail)

    def __len__(self) -> int:
        return len(self.mean)

    def __getitem__(self, item: Any) -> Self:
        return self.map(lambda parameter: parameter[item])

    @classmethod
    @abstractmethod
    def _concatenated(cls, parts: Sequence[Self]) -> Self: ...


class Parametric(Distribution):
    """A distribution given by named parameter tensors of one shape.

    Not a dataclass, because wrappers such as Fabric's rebuild dataclasses field by field.
    """

    names: ClassVar[tuple[str, ...]]
    _values: tuple[Tensor, ...]

    def __init__(self, *given: Number) -> None:
        like = next((v for v in given if isinstance(v, Tensor)), None)
        device = None if like is None else like.device
        kind = like.dtype if like is not None and like.is_floating_point() else torch.float64
        tensors = [
            value
            if isinstance(value, Tensor) and value.is_floating_point()
            # Through float64: torch would round a Python number to float32.
            else torch.as_tensor(value, dtype=torch.float64, device=device).to(kind)
            for value in given
        ]
        # One plain attribute: torch's compiler cannot follow a property and a value of the same name.
        self.__dict__["_values"] = tuple(torch.broadcast_tensors(*tensors))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a distribution cannot be changed: make another by `map` or `rescale`")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.names)}; shape {tuple(self.shape)})"

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """The parameter tensors in the order of the constructor."""
        return self._values

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        return type(self)(*(function(p) for p in self.parameters))

    @classmethod
    def _concatenated(cls, parts: Sequence[Self]) -> Self:
        return cls(*(torch.cat(column) for column in zip(*(d.parameters for d in parts), strict=True)))

    def _like(self, value: Number) -> Tensor:
        return torch.as_tensor(value, dtype=self.mean.dtype, device=self.mean.device)


def checked_scale(scale: Number) -> Number:
    """Return the scale of a rescaled distribution; 0, NaN and infinity are an error."""
    if not isinstance(scale, Tensor) and not (math.isfinite(scale) and scale != 0):
        raise ValueError(f"scale must be a finite number other than 0, got {scale!r}")
    return scale


def checked_coverage(coverage: float) -> float:
    """Return the coverage of an interval; 0, 1 and anything beyond is an error."""
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must lie between 0 and 1, got {coverage!r}")
    return coverage


def checked_probability(q: Number) -> Number:
    """Return the level of a quantile; a number outside 0..1 is an error."""
    if not isinstance(q, Tensor) and not 0 <= q <= 1:
        raise ValueError(f"a quantile's level must lie between 0 and 1, got {q!r}")
    return q
