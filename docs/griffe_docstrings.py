"""An extension of griffe: docstrings as Markdown, with examples as code and parameters as a list."""

from __future__ import annotations

import re
from typing import Any

import griffe

_HEAD = re.compile(r"^([A-Z]\w+)\n-+$", flags=re.MULTILINE)
_PARAMETER = re.compile(r"^([\w, ]+) : ", flags=re.MULTILINE)
_EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", flags=re.MULTILINE | re.DOTALL)


def as_markdown(text: str) -> str:
    """Return a docstring as Markdown; without this, `>>>` would be a quotation, and a description a type.

    >>> as_markdown("Add.\\n\\n>>> 1 + 1\\n2")
    'Add.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```'
    >>> as_markdown("Parameters\\n----------\\nx : any number.")
    '**Parameters**\\n\\n- `x`: any number.'
    """
    text = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
    text = _PARAMETER.sub(lambda found: f"- `{found[1]}`: ", text)
    return _HEAD.sub(r"**\1**\n", text)


class Docstrings(griffe.Extension):
    """Rewrite the docstring of every object once it is loaded, and let methods inherit theirs."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Give members without a docstring that of the class above, as `help` does; the site hides others."""
        inherit(pkg)


def plain_default(value: Any) -> Any:
    """Return the default of a parameter of TailRegressor, without what may be passed."""
    made = isinstance(value, griffe.ExprCall) and str(value.function) == "_parameter"
    return value.arguments[0] if made else value


def inherit(module: griffe.Module) -> None:
    """Copy docstrings to the members of a module's classes that override documented ones."""
    for owner in module.classes.values():
        if owner.is_alias:
            continue
        if "__init__" in owner.members:
            for parameter in owner.members["__init__"].parameters:
                parameter.default = plain_default(parameter.default)
        above = owner.mro()
        for name, member in owner.members.items():
            if member.is_alias or member.has_docstring or name.startswith("_"):
                continue
            overridden = [c.members[name] for c in above if name in c.members]
            member.docstring = next((other.docstring for other in overridden if other.docstring), None)
    for inner in module.modules.values():
        if not inner.is_alias:
            inherit(inner)
