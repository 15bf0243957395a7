"""Lookup by name. A misspelt name is answered with the nearest valid one."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for a misspelt name, or else the list of choices.

    >>> nearest("gausian", ["gaussian", "laplacian"])
    "; did you mean 'gaussian'?"
    >>> nearest("box", ["gaussian", "laplacian"])
    '; choose one of gaussian, laplacian'
    """
    options = sorted(choices)
    close = difflib.get_close_matches(name, options, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; choose one of {', '.join(options)}"


def check_name(kind: str, name: object, choices: Collection[str]) -> None:
    """Raise an error that suggests the nearest choice, unless the name is one of them.

    >>> check_name("kernel", "gausian", ["gaussian", "laplacian"])
    Traceback (most recent call last):
    ValueError: unknown kernel 'gausian'; did you mean 'gaussian'?
    """
    if name not in choices:
        raise ValueError(f"unknown {kind} {name!r}{nearest(str(name), choices)}")


def make_by_name(
    kind: str,
    registry: Mapping[str, Callable[..., T]],
    name: str,
    *args: Any,
    options: Mapping[str, Any] | None = None,
) -> T:
    """Call the registry's entry of this name. Options are its keyword-only arguments."""
    check_name(kind, name, registry)
    parameters = inspect.signature(registry[name]).parameters.values()
    known = [p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    for option in options or {}:
        if option not in known:
            hint = nearest(option, known) if known else "; it takes none"
            raise ValueError(f"{kind} {name!r} has no option {option!r}{hint}")
    return registry[name](*args, **(options or {}))
