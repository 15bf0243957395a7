"""Columns of numbers with a unit, such as ``1.257,33 EUR``, ``7%`` or ``12 km``, as numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

AGREEING = 0.95
"""This share of the cells must be numbers with one and the same unit; the other cells become missing."""
_CELL = re.compile(
    r"(?P<sign>[+-]?)\s?(?P<before>[€$£¥]?)\s?(?P<number>\d[\d.,'\s]*?)\s?(?P<after>[€$£¥%]|°?[^\W\d_]{1,12}[²³]?)?"
)
_PERHAPS_THOUSANDS = re.compile(r"[1-9]\d{0,2}[.,]\d{3}")


def without_unit(column: pd.Series[Any]) -> tuple[pd.Series[Any], str] | None:
    """Return the numbers and the unit of a column of texts; None unless nearly all cells agree.

    The decimal sign is that of the whole column. A column in which ``1.257`` may mean a thousand stays text.
    """
    import pandas as pd

    texts = column.astype(str).str.strip().where(column.notna()).dropna()
    first = _CELL.fullmatch(texts.iloc[0]) if len(texts) else None
    if first is None or not first["before"] + (first["after"] or ""):  # most columns of text end here
        return None
    cells = texts.map(_CELL.fullmatch).dropna()
    units = cells.map(lambda cell: cell["before"] + (cell["after"] or ""))
    unit, count = Counter(units).most_common(1)[0]
    if not unit or count < AGREEING * len(texts):
        return None
    numbers = cells[units == unit].map(lambda cell: cell["sign"] + re.sub(r"['\s]", "", cell["number"]))
    decimal = _decimal_sign([number.lstrip("+-") for number in numbers])
    if decimal is None:
        return None
    plain = numbers.str.replace("." if decimal == "," else ",", "").str.replace(decimal, ".")
    return pd.to_numeric(plain, errors="coerce").reindex(column.index).astype(float), unit


def _decimal_sign(numbers: Sequence[str]) -> str | None:
    """Return the sign before the decimals, which all numbers must have in common; None if it is open."""
    decided, open_ = set(), False
    for number in numbers:
        signs = re.findall(r"[.,]", number)
        if len(set(signs)) == 2:  # 1.257,33
            decided.add(signs[-1])
        elif len(signs) > 1:  # 1.257.000
            decided.add("," if signs[0] == "." else ".")
        elif signs and _PERHAPS_THOUSANDS.fullmatch(number):
            open_ = True
        else:
            decided.update(signs)
    if len(decided) > 1 or (open_ and not decided):
        return None
    return decided.pop() if decided else "."
