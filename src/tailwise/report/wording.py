"""Numbers as text, and sentences and pages from templates: code knows fields, templates say them."""

from __future__ import annotations

import base64
import functools
import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tailwise._version import __version__
from tailwise.labels.prior import RARE_SHARE


def percent(share: float) -> str:
    """Return a share as a whole percentage."""
    return f"{100 * share:.0f}%"


def level(share: float) -> str:
    """Return the level of an interval as a percentage; 99.5% must not become 100%.

    >>> level(0.9), level(0.995), level(0.999)
    ('90%', '99.5%', '99.9%')
    """
    return f"{100 * share:.4g}%"


def number(value: float, digits: int = 3) -> str:
    """Return a number with so many significant digits, without powers of ten below 1e9; – for NaN.

    >>> number(0.12345), number(1234.5), number(-3.0), number(np.nan)
    ('0.123', '1,234', '-3', '–')
    """
    if value == 0 or not np.isfinite(value):
        return "0" if value == 0 else "–" if np.isnan(value) else str(value)
    if 100 <= abs(value) < 1e9:
        return f"{value:,.{max(digits - len(str(int(abs(value)))), 0)}f}"
    return f"{value:.{digits}g}"


def pair(first: float, second: float) -> tuple[str, str]:
    """Return two numbers with enough digits to show their difference to within a half; at least three.

    >>> pair(1.38, 1.43), pair(423.5, 422.9), pair(0.5, 0.5)
    (('1.38', '1.43'), ('423.5', '422.9'), ('0.5', '0.5'))
    """
    gap, texts = first - second, ("", "")
    for digits in range(3, 18):
        texts = number(first, digits), number(second, digits)
        if "–" in texts:
            break
        shown = float(texts[0].replace(",", "")) - float(texts[1].replace(",", ""))
        if abs(shown - gap) <= abs(gap) / 2:
            break
    return texts


RARE = f"the rarest {level(RARE_SHARE)} of the labels"
SHORT = 30
"""Characters of a column's name that a page shows."""
REGION_WORDS = {
    "all": "all rows",
    "many": "common labels",
    "medium": "less common labels",
    "few": "rare labels",
}


def joined(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``.

    >>> joined(["a", "b", "c"]), joined(["a", "b"])
    ('a, b and c', 'a and b')
    """
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


@functools.cache
def _environment(*, html: bool) -> Environment:
    environment = Environment(
        loader=PackageLoader("tailwise.report"),
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "signed": lambda value: "+" * bool(value > 0) + number(value),
        "percent": percent,
        "level": level,
        "setting": "{:g}".format,
        "and": lambda words: joined(list(words)),
        "short": lambda name: name if len(name) <= SHORT else f"{name[: SHORT - 1]}…",
        "regions": lambda names: joined([REGION_WORDS[name] for name in names]),
        "against": lambda two: " against ".join(pair(*two)),
    }
    environment.globals |= {"pair": pair, "isnan": math.isnan, "rarest": RARE}
    return environment


@functools.cache
def _macros(template: str) -> Any:
    return _environment(html=False).get_template(f"{template}.txt").module


def text(template: str, macro: str, *facts: Any) -> str:
    """Return what a macro of a template says of some facts."""
    return str(getattr(_macros(template), macro)(*facts)).strip()


def sentences(template: str, macro: str, *facts: Any) -> tuple[str, ...]:
    """Return the same as one sentence per line."""
    lines = text(template, macro, *facts).split("\n")
    return tuple(line.strip() for line in lines if line.strip())


def say(template: str, macro: str, *facts: Any) -> str:
    """Return the same as one line."""
    return " ".join(sentences(template, macro, *facts))


def render(template: str, *, script: str | None = None, **values: Any) -> str:
    """Return a page: one file, no network, light and dark, for screen and paper.

    A missing value is an error. The page may run the `script` of the templates and nothing else: its policy
    names the hash of the script.
    """
    environment = _environment(html=True)
    code = "" if script is None else environment.get_template(script).render()
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    allowed = f"'sha256-{digest}'" if code else "'none'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {allowed}"
    return environment.get_template(template).render(
        version=__version__, code=Markup(code), policy=policy, **values
    )
