"""Where VIR is worst on the seven tables, in words that its results give.

    python benchmarks/worst_places.py --write

Prints lines for README.md, and the section `Where VIR is worst` of the README of results, which `--write`
replaces. Both come from research/results/results.jsonl (`tailwise bench suite tabular`).
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tailwise.benchmark import read_results
from tailwise.benchmark.pages.statistics import Figure, Results, compare

ROOT = Path(__file__).parents[1]
VIR, BASE = "vir", "vanilla"
LABELS = {"many": "common labels", "medium": "labels between rare and common", "few": "rare labels"}
SECTION = re.compile(r"^## Where VIR is worst\n.*?(?=^## )", re.M | re.S)
WIDTH = 125
ENOUGH_SEEDS = 5


def place(results: Results, region: str) -> int:
    """Return VIR's place by average rank of the MAE, 1 being best; equal ranks count against VIR."""
    ranks = results.average_ranks(Figure("mae", region))
    return sum(rank <= ranks[VIR] for rank in ranks.values())


def placed(results: Results, region: str) -> str:
    """Say VIR's place, and that it is the worst if it is the last."""
    last = place(results, region) == len(results.methods)
    return f"place {place(results, region)}{', the worst' if last else ''}"


def ratio(results: Results, region: str) -> str:
    """Return VIR's MAE divided by the plain network's."""
    return f"{results.relative(Figure('mae', region), VIR, BASE):.2f}"


def better(results: Results, region: str) -> list[str]:
    """Return the methods with a lower MAE than VIR beyond chance in the seeds."""
    tests = compare(results, Figure("mae", region), VIR, over="seeds")
    return [test.method for test in tests if test.verdict() == "better"]


def ahead(results: Results, region: str) -> list[str]:
    """Return the methods whose average rank is not above VIR's, the best first."""
    ranks = results.average_ranks(Figure("mae", region))
    return [m for m in sorted(ranks, key=ranks.__getitem__) if m != VIR and ranks[m] <= ranks[VIR]]


def _listed(words: Sequence[str]) -> str:
    between = "; " if any("," in word for word in words) else ", "
    return " and ".join(filter(None, [between.join(words[:-1]), words[-1]]))


def seeds_of(results: Results) -> int:
    """Return the number of seeds."""
    return len({record["seed"] for record in results.records})


def counted(results: Results, region: str) -> str:
    """Say how many others have a lower error, and how many of them beyond chance: few seeds show little."""
    others = [m for m in results.methods if m != VIR]
    lower = [m for m in others if results.relative(Figure("mae", region), m, VIR) < 1]
    count, sure = len(lower), len(better(results, region))
    text = f"{count or 'none'} of {len(others)} others {'has' if count == 1 else 'have'} a lower error"
    return f"{text}, {sure or 'none'} beyond chance in {seeds_of(results)} seeds" if lower else text


def rival(results: Results) -> str:
    """Say which method has the best average rank for rare labels, and where it is better than VIR."""
    if not (names := ahead(results, "few")):
        return "VIR has the best average rank for rare labels."
    where = {"few": "rare labels", "many": "common ones", "medium": "those between", "all": "all labels"}
    beyond = [words for region, words in where.items() if names[0] in better(results, region)]
    text = f"For rare labels {results.titles[names[0]]} has the best average rank"
    return text + (f", and a lower error than VIR's beyond chance for {_listed(beyond)}." if beyond else ".")


def readme_line(results: Results) -> str:
    """Return what README.md says: VIR's errors and places."""
    words = {"few": "for rare labels", "many": "for common ones", "medium": "for those between"}
    words["all"] = "overall"
    cells = [f"{ratio(results, r)} {words[r]} ({placed(results, r)})" for r in words]
    return f"VIR's MAE divided by the plain network's is {', '.join(cells[:-1])} and {cells[-1]}."


def section(results: Results) -> str:
    """Return the section of research/results/README.md, the worst region first."""
    others = len(results.methods) - 1
    points = [
        f"**All labels**: {placed(results, 'all')}. VIR's error is {ratio(results, 'all')} times Vanilla's; "
        f"{counted(results, 'all')}."
    ]
    for region in sorted(LABELS, key=lambda region: -place(results, region)):
        names = [results.titles[m] for m in ahead(results, region)]
        behind = f", behind {_listed(names)}" if 0 < len(names) <= 5 else ""
        points.append(
            f"**{LABELS[region].capitalize()}** ({region}-shot): {placed(results, region)}{behind}. "
            f"VIR's error is {ratio(results, region)} times Vanilla's; "
            f"{counted(results, region)}."
        )
    points.append(rival(results))
    if seeds_of(results) < ENOUGH_SEEDS:
        points.append(
            f"With {seeds_of(results)} seeds, a test of {others} methods finds little beyond chance."
        )
    tables = "[tabular.md](tabular.md)"
    head = f"On the {len(results.data)} tables of {tables}, by average rank of the MAE"
    head += f" among {others + 1} contenders:"
    fill = partial(textwrap.fill, width=WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    wrapped = [fill(f"- {point}") for point in points]
    return "\n".join(["## Where VIR is worst", "", head, "", *wrapped, "", ""])


def main() -> None:
    """Print both texts, and replace the section if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--write", action="store_true", help="replace the section in research/results/README.md"
    )
    options = parser.parse_args()
    folder = ROOT / "research" / "results"
    results = Results(read_results(folder / "results.jsonl"))
    print(f"README.md:\n- {readme_line(results)}\n- {rival(results)}\n\n{section(results)}")
    if options.write:
        page = folder / "README.md"
        text = SECTION.sub(lambda _: section(results), page.read_text(encoding="utf-8"))
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
