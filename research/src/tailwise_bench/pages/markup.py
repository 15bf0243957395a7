"""Tables of text as Markdown, the format of their numbers, and the files of pages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tailwise.writing import write_atomically


@dataclass(frozen=True)
class Table:
    """Cells of text under a head; the cells of `best` (row, column) are printed in bold."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    best: frozenset[tuple[int, int]] = frozenset()

    def markdown(self) -> str:
        """Return a pipe table under its caption."""
        lines = [
            f"**{self.caption}**",
            "",
            _piped(self.head),
            _piped(["---"] + ["--:"] * (len(self.head) - 1)),
        ]
        for r, row in enumerate(self.rows):
            lines.append(_piped([f"**{c}**" if (r, i) in self.best else c for i, c in enumerate(row)]))
        return "\n".join(lines) + "\n"


def write_text(path: Path, text: str) -> Path:
    """Write a page as a whole or not at all, and return its path."""
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))
    return path


def _piped(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


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
    if math.isnan(mean):
        return "-"
    places = len(number(mean).partition(".")[2])
    return f"{mean:.{places}f}" + ("" if math.isnan(std) else f" ± {std:.{places}f}")


def p_value(p: float) -> str:
    """Format with three decimals, or as below 0.001."""
    return "-" if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def best_cells(columns: Iterable[Sequence[float]]) -> frozenset[tuple[int, int]]:
    """Return the cells with the lowest number of their column; column 0 of the table has names."""
    found = set()
    for c, values in enumerate(columns, start=1):
        if not np.isnan(values).all():
            low = np.nanmin(values)
            found |= {(r, c) for r, value in enumerate(values) if value == low}
    return frozenset(found)
