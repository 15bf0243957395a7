"""Numbers as text: short, without powers of ten, and with enough digits to show a difference."""

from __future__ import annotations

import numpy as np


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
    """Return a number with so many significant digits, without powers of ten below 1e9.

    >>> number(0.12345), number(1234.5), number(-3.0)
    ('0.123', '1,234', '-3')
    """
    if value == 0 or not np.isfinite(value):
        return "0" if value == 0 else str(value)
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
        shown = float(texts[0].replace(",", "")) - float(texts[1].replace(",", ""))
        if abs(shown - gap) <= abs(gap) / 2:
            break
    return texts
