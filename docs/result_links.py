"""Link pages of results once they exist, and say in the overview of results how long their runs took.

    python docs/result_links.py

A page that does not exist yet cannot be linked, and one that exists must be: in the index, in the overview
and in the site's navigation. `make docs` runs this first, so that a new page needs no edit by hand. Pages
that are linked already are left as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tailwise.benchmark.run.results import ResultsFile

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Page:
    """A page of docs/results, and what is said about it where it is linked."""

    name: str
    lines: str
    """Its results file, below docs/results."""
    command: str
    title: str
    question: str
    after: str
    """The page behind which it is listed."""
    machine: str = ""


PAGES = (
    Page(
        "tabular-sqinv", "tabular-sqinv.jsonl", "`tailwise bench suite tabular --weights sqinv`",
        "Methods on tables, all weighted by SQINV",
        "Which contender wins if all have the paper's label weights?", "tabular",
    ),
    Page(
        "priors", "priors.jsonl", "`tailwise bench search-prior` (with `--prepared` to run it)",
        "The prior of VIR", "Which prior does the paper's search find for `vir-paper`?", "defaults",
    ),
    Page(
        "rows", "rows.jsonl", "`python benchmarks/rows.py --write`", "Time by the number of rows",
        "How does the time of `TailRegressor` grow with rows, beside CatBoost's?", "estimator",
    ),
    Page(
        "nyuv2-small", "nyuv2-small/results.jsonl",
        "`tailwise bench suite nyuv2-small --out docs/results/nyuv2-small`, then `tailwise bench depth`",
        "Depth maps", "How good are depth maps and their uncertainty, near and far?", "utkface",
        " on an H200",
    ),
)  # fmt: skip


HOURS = {
    "`results.jsonl`": "results.jsonl",
    "`ablations.jsonl`": "ablations.jsonl",
    "`stsb-modern/`": "stsb-modern/results.jsonl",
    "`stsb-paper/`": "stsb-paper/results.jsonl",
    "`defaults.jsonl`": "defaults.jsonl",
    "`estimator.jsonl`": "estimator.jsonl",
}
"""Results files as the overview names them, whose hours it says."""


def seconds(path: Path) -> float:
    """Return the time of all runs of a results file."""
    total = 0.0
    for line in ResultsFile(path).records:
        found = line.get("seconds", 0.0)
        if isinstance(found, dict):
            found = found.get("all") or sum(value for part, value in found.items() if part != "unit")
        total += found
    return total


def hours(page: Page, root: Path) -> str:
    """Return the time of all runs of a page in words."""
    total = seconds(root / "docs" / "results" / page.lines)
    words = f"{total / 3600:.1f} hours" if total >= 3600 else f"{max(round(total / 60), 1)} minutes"
    return words + page.machine


def with_hours(text: str, root: Path = ROOT) -> str:
    """Return the overview of results with the hours that the results files give."""
    lines = text.splitlines()
    for name, file in HOURS.items():
        (place,) = (i for i, line in enumerate(lines) if line.startswith("| ") and name in line)
        words = f" {seconds(root / 'docs' / 'results' / file) / 3600:.1f} hours"
        lines[place] = re.sub(r" \d+\.\d hours", words, lines[place])
    return "\n".join([*lines, ""])


FILES = {
    "docs/results/README.md": "]({}.md)",
    "docs/index.md": "](results/{}.md)",
    "mkdocs.yml": ": results/{}.md",
}
"""The files that link to pages, and what a link looks like there."""


def entries(page: Page, root: Path) -> tuple[str, ...]:
    """Return the line of each of `FILES` that links to a page."""
    folder, _, rest = page.lines.rpartition("/")
    lines = f"`{folder}/`" if folder else f"`{rest}`"
    return (
        f"| [{page.name}.md]({page.name}.md) | {lines} | {page.command} | {hours(page, root)} |",
        f"| [{page.title}](results/{page.name}.md) | {page.question} |",
        f"      - {page.title}: results/{page.name}.md",
    )


def add_links(root: Path = ROOT) -> list[str]:
    """Add the links that are missing; return what was added."""
    added = []
    for page in PAGES:
        if not (root / "docs" / "results" / f"{page.name}.md").is_file():
            continue
        for (file, link), entry in zip(FILES.items(), entries(page, root), strict=True):
            path = root / file
            lines = path.read_text(encoding="utf-8").splitlines()
            if not any(link.format(page.name) in line for line in lines):
                place = next(i for i, line in enumerate(lines, start=1) if link.format(page.after) in line)
                path.write_text("\n".join([*lines[:place], entry, *lines[place:], ""]), encoding="utf-8")
                added.append(f"{file}: {page.name}.md")
    return added


def main() -> None:
    """Link pages and refresh hours."""
    for entry in add_links():
        print(f"linked in {entry}")
    overview = ROOT / "docs" / "results" / "README.md"
    overview.write_text(with_hours(overview.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
