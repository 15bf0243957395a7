"""Choosing by name: every option that takes a name answers a misspelt one with the nearest."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for a misspelt name, or the list of choices."""
    options = sorted(choices)
    close = difflib.get_close_matches(name, options, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; choose one of {', '.join(options)}"


def make_by_name(
    kind: str,
    registry: Mapping[str, Callable[..., T]],
    name: str,
    *args: Any,
    options: Mapping[str, Any] | None = None,
) -> T:
    """Build what a registry holds under a name; options are its keyword-only arguments."""
    if name not in registry:
        raise ValueError(f"unknown {kind} {name!r}{nearest(name, registry)}")
    parameters = inspect.signature(registry[name]).parameters.values()
    known = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    for option in options or {}:
        if option not in known:
            hint = nearest(option, known) if known else "; it takes none"
            raise ValueError(f"{kind} {name!r} has no option {option!r}{hint}")
    return registry[name](*args, **(options or {}))
