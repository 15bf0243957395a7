"""What commands print: figures by region with a verdict, rankings of methods, JSON."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tailwise.workflow import note

if TYPE_CHECKING:
    from tailwise.report.scoring import Scored
    from tailwise.report.verdict import Verdict


def print_json(data: Any) -> None:
    """Print results as JSON."""
    import json

    typer.echo(json.dumps(_plain_data(data), indent=2, allow_nan=False))


def _plain_data(value: Any) -> Any:
    """Numbers, strings, lists and mappings; what is not a finite number becomes null."""
    if isinstance(value, Mapping):
        return {str(key): _plain_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_data(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return str(value) if isinstance(value, Path) else value


def print_words(text: str) -> None:
    """Print sentences: whole words to a line on a terminal, one line in a log."""
    if not sys.stdout.isatty():
        typer.echo(text)
        return
    from rich.console import Console
    from rich.text import Text

    Console().print(Text(text))


@dataclass(frozen=True)
class Finding:
    """What was measured of one target: a model, perhaps another beside it, and what they show."""

    target: str
    scored: Scored
    baseline: Scored | None
    verdict: Verdict

    def to_dict(self) -> dict[str, Any]:
        """Return figures by region and the verdict, ready for JSON."""
        both = {"regions": self.scored, "baseline": self.baseline}
        regions = {k: v.by_region().to_dict(orient="index") for k, v in both.items() if v is not None}
        return {"target": self.target, "verdict": self.verdict.to_dict(), **regions}


def finding_of(target: str, scored: Scored, baseline: Scored | None = None) -> Finding:
    """Judge a model's scores."""
    from tailwise.report.verdict import judge

    return Finding(target, scored, baseline, judge(scored, baseline))


def tell(findings: Sequence[Finding], facts: Mapping[str, Any], *, as_json: bool, quiet: bool) -> None:
    """Print figures by region and a verdict for each target; `facts` say what was written."""
    if as_json:
        told = {"target": None, "verdict": None} if not findings else findings[0].to_dict()
        several = {"targets": [finding.to_dict() for finding in findings]}
        print_json({**facts, **(told if len(findings) < 2 else several)})
        return
    for finding in findings:
        if len(findings) > 1:
            typer.echo(f"{finding.target}:")
        _print_regions([s for s in (finding.scored, finding.baseline) if s is not None])
        print_words(finding.verdict.text)
    for name in ("model", "report"):
        if facts.get(name) is not None:
            note(f"wrote {facts[name]}", quiet)


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, names: int = 1, title: str = ""
) -> None:
    """Print a table; columns that a terminal has no room for follow below, beside the first `names` again."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, cells)) + 2 for cells in columns]
    console = Console(width=None if sys.stdout.isatty() else sum(widths))
    start = names
    while start < len(columns):
        end, used = start + 1, sum(widths[:names]) + widths[start]
        while end < len(columns) and used + widths[end] <= console.width:
            used, end = used + widths[end], end + 1
        shown = [*columns[:names], *columns[start:end]]
        table = Table(*(cells[0] for cells in shown), box=None, title=Text(title) if start == names else None)
        for row in list(zip(*shown, strict=True))[1:]:
            table.add_row(*map(Text, row))  # names are what they are, even in brackets
        console.print(table)
        start = end


def _print_regions(models: Sequence[Scored]) -> None:
    from tailwise.report.formatting import level, number

    promised = level(models[0].coverage)
    rows = []
    for scored in models:
        for region, row in scored.by_region().iterrows():
            if row["n"] > 0:
                figures = [number(row["mae"]), number(row["rmse"]), number(row["nll"])]
                shown = [f"{row['n']:.0f}", *figures, f"{row['coverage']:.1%}", number(row["width"])]
                rows.append([scored.title if region == "all" else "", str(region), *shown])
    header = ["method", "region", "rows", "MAE", "RMSE", "NLL", f"{promised} coverage", "width"]
    print_table(header, rows, names=2)


def print_comparison(results: Any) -> None:
    """Print a table of methods for each data set, and what it shows."""
    from tailwise.report.ranking import COLUMNS, comparison_verdict, method_cells

    for data in results.data:
        rows = [[title, *cells] for title, cells in method_cells(results, data).items()]
        print_table(["method", *(figure.name for figure in COLUMNS)], rows, title=data)
    for line in comparison_verdict(results):
        print_words(line)
