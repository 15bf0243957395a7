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
    """Rewrite the docstring of every object once it is loaded."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)
