"""Options of a class, checked against the signature of its constructor before anything is built.

Keyword-only arguments are options. Their annotations say which values they take: a type, a `Literal`, a
tuple, or a number with limits, such as `NotNegative`. Fields of dataclasses have the same annotations;
`tailwise.files.codec` checks them in files.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from tailwise.lookup import nearest


@dataclass(frozen=True)
class Between:
    """Limits of a number; `ends` are those of an interval, ``[`` and ``]`` with the limit itself."""

    low: float = -math.inf
    high: float = math.inf
    ends: str = "[]"

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.ends[0] == "(" else value >= self.low
        return above and (value < self.high if self.ends[1] == ")" else value <= self.high)

    def __str__(self) -> str:
        if math.isinf(self.high):
            return f"above {self.low}" if self.ends[0] == "(" else f"of at least {self.low}"
        return f"in {self.ends[0]}{self.low}, {self.high}{self.ends[1]}"


@dataclass(frozen=True)
class Items:
    """Limits of the number of items of a list, a mapping or a text, or of elements of an array."""

    low: int = 0
    high: int = 10_000_000

    def __contains__(self, count: int) -> bool:
        return self.low <= count <= self.high


NotNegative = Annotated[float, Between(0)]
Positive = Annotated[float, Between(0, ends="(]")]
Share = Annotated[float, Between(0, 1, "[)")]
Count = Annotated[int, Between(0)]
Size = Annotated[int, Between(1, 1 << 20)]
Fraction = Annotated[float, Between(0, 1)]
AnyNumber = Annotated[float, "NaN and infinities included"]

_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def checked_options(
    what: str,
    path: str,
    maker: Callable[..., Any],
    options: Mapping[str, Any],
    also: Mapping[str, tuple[Any, Any]] = {},
) -> dict[str, Any]:
    """Return all options of a class: those given, checked, and the defaults of the others.

    An unknown option is an error that names the nearest one. `what` names the class in errors, and
    ``path.option`` an option. `also` has the annotations and defaults of more options.

    >>> def power(x: float, *, exponent: NotNegative = 2.0) -> float: ...
    >>> checked_options("map 'power'", "map", power, {"exponent": 3})
    {'exponent': 3.0}
    >>> checked_options("map 'power'", "map", power, {"exponent": -1})
    Traceback (most recent call last):
    ValueError: map.exponent must be a number of at least 0, got -1
    """
    parameters = inspect.signature(maker, eval_str=True).parameters.values()
    known = {p.name: (p.annotation, p.default) for p in parameters if p.kind is p.KEYWORD_ONLY}
    known = {**also, **known}
    for name in options:
        if name not in known:
            hint = nearest(name, known) if known else "; it takes none"
            raise ValueError(f"{what} has no option {name!r}{hint}")
    found = {}
    for name, (annotation, default) in known.items():
        value = options.get(name, default)
        if value is inspect.Parameter.empty:
            raise ValueError(f"{what} needs the option {name!r}")
        found[name] = checked_value(f"{path}.{name}", value, annotation)
    return found


def checked_value(where: str, value: Any, hint: Any) -> Any:
    """Return a value as its annotation has it: lists as tuples, whole numbers as floats where it says so."""
    form, inner = get_origin(hint), get_args(hint)
    if form is Annotated:
        kind, limits = inner
        number = checked_value(where, value, kind)
        if number not in limits:
            raise ValueError(f"{where} must be {_KINDS[kind]} {limits}, got {value!r}")
        return number
    if form in (Union, types.UnionType):
        if value is None and type(None) in inner:
            return None
        (hint,) = (each for each in inner if each is not type(None))
        return checked_value(where, value, hint)
    if form is Literal:
        if value not in inner:
            raise ValueError(f"unknown {where} {value!r}{nearest(str(value), inner)}")
        return value
    if form is tuple:
        if not isinstance(value, list | tuple) or len(value) != len(inner):
            raise ValueError(f"{where} must be {len(inner)} numbers, got {value!r}")
        return tuple(checked_value(where, v, h) for v, h in zip(value, inner, strict=True))
    if hint not in _KINDS:
        return value
    fits = isinstance(value, {int: Integral, float: Real}.get(hint, hint))
    if (
        not fits
        or (hint is not bool and isinstance(value, bool))
        or (hint is float and not math.isfinite(value))
    ):
        raise ValueError(f"{where} must be {_KINDS[hint]}, got {value!r}")
    return hint(value)
