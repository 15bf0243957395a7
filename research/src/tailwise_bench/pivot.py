"""The one table of all pages: a column for each figure and a row for each method."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from tailwise_bench.statistics import Figure, Results

Cell = Callable[[str], str | tuple[str, float]]
"""The text of a method's cell; with a number, the cell whose number is the least is bold."""


def pivot(caption: str, columns: Mapping[str, Cell], rows: Mapping[str, str], first: str = "method") -> str:
    """Return a Markdown table with a row for each method, given with its title; nothing without rows."""
    texts = []
    for cell in columns.values():
        cells = [(of, math.nan) if isinstance(of, str) else of for of in map(cell, rows)]
        least = min((value for _, value in cells if not math.isnan(value)), default=math.nan)
        texts.append([f"**{text}**" if value == least else text for text, value in cells])
    return as_markdown(caption, [first, *columns], zip(rows.values(), *texts, strict=True)) if rows else ""


def as_markdown(caption: str, head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table under its caption; the numbers are on the right."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    piped = ["| " + " | ".join(str(c).replace("|", r"\|") for c in line) + " |" for line in (head, *lines)]
    return "\n".join([f"**{caption}**", "", piped[0], f"|{'|'.join(rule)}|", *piped[1:], ""])


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


def means(
    results: Results, figures: Mapping[str, tuple[Figure, str]], *, bold: bool = True
) -> dict[str, Cell]:
    """Return columns of means and standard deviations over seeds, each of a figure on a data set."""

    def column(figure: Figure, data: str) -> Cell:
        def cell(method: str) -> tuple[str, float]:
            mean, std = results.mean_std(figure, data, method)
            return with_spread(mean, std), figure.loss(mean) if bold else math.nan

        return cell

    return {head: column(*of) for head, of in figures.items()}
