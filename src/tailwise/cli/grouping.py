"""Options in groups: a parameter of a command that is a dataclass stands for one option per field."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter
from typing import Any, get_type_hints


def flattened(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose signature, from which Typer reads the options, lists those of groups one by one.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Shared:
    ...     quiet: bool = False
    >>> def greet(name: str, *, shared: Shared) -> None:
    ...     print(name, shared.quiet)
    >>> list(inspect.signature(flattened(greet)).parameters)
    ['name', 'quiet']
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    listed: list[Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            kinds = get_type_hints(groups[name], include_extras=True)
            listed += [
                Parameter(
                    option.name, Parameter.KEYWORD_ONLY, default=option.default, annotation=kinds[option.name]
                )
                for option in fields(groups[name])
            ]
        else:
            listed.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name]))

    @wraps(command)
    def call(**options: Any) -> None:
        for name, group in groups.items():
            options[name] = group(**{option.name: options.pop(option.name) for option in fields(group)})
        command(**options)

    call.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in listed}
    return call
