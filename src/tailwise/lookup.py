"""Lookup by name. A misspelt name is answered with the nearest valid one."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable


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
