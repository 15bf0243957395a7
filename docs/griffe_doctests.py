"""An extension of griffe: examples in docstrings become code; Markdown would read them as quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", flags=re.MULTILINE | re.DOTALL)


def fenced(text: str) -> str:
    """Put fences around examples, from `>>>` to the next empty line.

    >>> fenced("Add.\\n\\n>>> 1 + 1\\n2")
    'Add.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```'
    """
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)


class Doctests(griffe.Extension):
    """Fence the examples of every object, except in sections `Examples`, which griffe reads itself."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Change the docstring of an object once it is loaded."""
        if obj.docstring and "Examples\n----" not in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)
