"""The one table of all pages: a pivot with a column for each figure and a row for each method."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tailwise_bench.statistics import Figure, Results


@dataclass(frozen=True)
class Column:
    """A column: its head, and for a row the text of its cell with a number of which the least is best."""

    head: str
    cell: Callable[[str], tuple[str, float]]


def pivot(
    caption: str,
    columns: Sequence[Column],
    rows: Sequence[str],
    titles: Mapping[str, str],
    first: str = "method",
) -> str:
    """Return a Markdown table with a row for each method and its best cells in bold."""
    cells = [[column.cell(row) for column in columns] for row in rows]
    least = [_least(line[c][1] for line in cells) for c in range(len(columns))]
    lines = [
        [
            titles[row],
            *(
                f"**{text}**" if value == low else text
                for (text, value), low in zip(line, least, strict=True)
            ),
        ]
        for row, line in zip(rows, cells, strict=True)
    ]
    return as_markdown(caption, [first, *(column.head for column in columns)], lines)


def as_markdown(caption: str, head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table under its caption; the numbers are on the right."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    piped = ["| " + " | ".join(str(c).replace("|", r"\|") for c in line) + " |" for line in (head, *lines)]
    return "\n".join([f"**{caption}**", "", piped[0], f"|{'|'.join(rule)}|", *piped[1:], ""])


def _least(values: Iterable[float]) -> float:
    return min((value for value in values if not math.isnan(value)), default=math.nan)


def number(value: float, digits: int = 3) -> str:
    """Format with significant digits, at most four decimals and no exponent; ``-`` for NaN.

    >>> number(1234.5), number(0.01234), number(float("nan"))
    ('1234', '0.0123', '-')
    """
    if math.isnan(value):
        return "-"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else digits - 1
    return f"{value:.{min(places, 4)}f}"


def with_spread(mean: float, std: float) -> str:
    """Format a mean and its standard deviation with the decimals of the mean."""
    places = len(number(mean).partition(".")[2])
    return number(mean) + ("" if math.isnan(std) else f" ± {std:.{places}f}")


def p_value(p: float) -> str:
    """Format with three decimals, or as below 0.001."""
    return "-" if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def fixed(value: float, form: str = ".3f") -> str:
    """Format with a fixed number of decimals; ``-`` for NaN."""
    return "-" if math.isnan(value) else f"{value:{form}}"


# -- columns -------------------------------------------------------------------------------------


def mean_column(results: Results, figure: Figure, data: str, head: str | None = None) -> Column:
    """Mean and standard deviation over seeds on one data set."""

    def cell(method: str) -> tuple[str, float]:
        mean, std = results.mean_std(figure, data, method)
        return with_spread(mean, std), figure.loss(mean)

    return Column(head or figure.name, cell)


def plain_column(
    head: str, value: Callable[..., float], *bound: Any, form: str = ".3f", bold: bool = False
) -> Column:
    """A number of each method; `value` is called with the method and what is `bound`."""

    def cell(method: str) -> tuple[str, float]:
        found = value(method, *bound)
        return fixed(found, form), found if bold else math.nan

    return Column(head, cell)


def text_column(head: str, text: Callable[..., str], *bound: Any) -> Column:
    """Words about each method; `text` is called with the method and what is `bound`."""
    return Column(head, lambda method: (text(method, *bound), math.nan))


def spread_column(results: Results, figure: Figure, data: str, head: str | None = None) -> Column:
    """Mean and standard deviation over seeds, without a best one."""
    return text_column(head or figure.name, lambda m: with_spread(*results.mean_std(figure, data, m)))


def nanmean(values: Sequence[float]) -> float:
    """Return the mean of the numbers that are known; NaN if none is."""
    known = [value for value in values if not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan
