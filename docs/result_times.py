"""Say in the overview of results how long the runs of each page took.

    python docs/result_times.py

The last column of its table is the sum of the seconds of all lines of the results files that the row names.
"""

from __future__ import annotations

import re
from pathlib import Path

from tailwise.benchmark.run.results import ResultsFile

FOLDER = Path(__file__).parents[1] / "research" / "results"
ROW = re.compile(r"^(\|[^|]*\|([^|]*)\|[^|]*\|)[^|]*\|$", re.M)


def words(files: list[str]) -> str:
    """Return the time of all runs of some results files, and the GPU if they ran on one."""
    lines = [line for file in files for line in ResultsFile(FOLDER / file).records]
    total = 0.0
    for line in lines:
        seconds = line.get("seconds", 0.0)
        if isinstance(seconds, dict):
            seconds = seconds.get("all") or sum(value for part, value in seconds.items() if part != "unit")
        total += seconds
    time = f"{total / 3600:.1f} hours" if total >= 3600 else f"{max(round(total / 60), 1)} minutes"
    gpus = sorted({line["trace"]["device"] for line in lines} - {"cpu"})
    return f"{time} on an {', '.join(gpus)}" if gpus else time if total else "-"


def with_times(text: str) -> str:
    """Return the overview with the times that the results files give."""

    def row(found: re.Match[str]) -> str:
        files = re.findall(r"`([\w./-]+\.jsonl)`", found[2])
        return f"{found[1]} {words(files)} |" if files else found[0]

    return ROW.sub(row, text)


def main() -> None:
    """Write the times into the overview."""
    overview = FOLDER / "README.md"
    overview.write_text(with_times(overview.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
