"""Check the figures in the text: `make docs` runs this.

    python docs/check_figures.py

Every figure with a spread or with three decimals in README.md, docs/results.md and docs/which-method.md must
stand in a page of research/results.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIGURE = re.compile(r"\d+\.\d+ ± \d+\.\d+|\b\d\.\d{3}\b")


def unknown_figures() -> list[str]:
    """Name the figures in the text that no page of results has."""
    stated = " ".join(
        page.read_text(encoding="utf-8") for page in (ROOT / "research" / "results").glob("*.md")
    )
    return [
        f"{name}: {figure}"
        for name in ("README.md", "docs/results.md", "docs/which-method.md")
        for figure in FIGURE.findall((ROOT / name).read_text(encoding="utf-8"))
        if figure not in stated
    ]


if __name__ == "__main__":
    unknown = unknown_figures()
    print("\n".join(unknown) or "Every figure in the text stands in a page of results.")
    sys.exit(1 if unknown else 0)
