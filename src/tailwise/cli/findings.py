"""What commands find about a model, printed, as JSON and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import typer

from tailwise.cli.output import command_line, print_table, print_words, printable

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.calibration.interval_scores import RunningCoverage
    from tailwise.estimator import TailRegressor
    from tailwise.report.baselines import Lineup
    from tailwise.report.scoring import Scored
    from tailwise.report.verdict import Verdict


@dataclass(frozen=True)
class Finding:
    """Scores of one target: a model and its baselines, and the verdict on them.

    `measured` has the figures by region if they are over more rows than those of the lineup.
    """

    target: str
    lineup: Lineup
    verdict: Verdict
    measured: Sequence[pd.DataFrame] | None = None

    @cached_property
    def tables(self) -> Sequence[pd.DataFrame]:
        """Figures by region of the model and each baseline, in the order of `Lineup.all`."""
        return self.measured or [scored.by_region() for scored in self.lineup.all]

    def to_dict(self) -> dict[str, Any]:
        """Return figures by region and the verdict, ready for JSON."""
        models = self.lineup
        each = {
            "regions": models.ours,
            "baseline": models.other,
            "base": models.booster,
            "weighted": models.weighted,
            "constant": models.constant,
        }
        names = [name for name, scored in each.items() if scored is not None]
        regions = {k: v.to_dict(orient="index") for k, v in zip(names, self.tables, strict=True)}
        return {"target": self.target, "verdict": self.verdict.to_dict(), **regions}


def negative_ends(scored: Scored) -> str:
    """Say how many intervals reach below 0 although no training label does; "" if none does."""
    from tailwise.calibration.interval_scores import label_range

    below = int((scored.lower < 0).sum())
    if below == 0 or min(label_range(scored.bins)[0], scored.y.min()) < 0:
        return ""
    return (
        f"{below:,} of {scored.lower.size:,} test intervals reach below 0, which no training label does. If "
        "such labels are impossible, use --bounds 0, (no upper end)."
    )


def print_findings(findings: Sequence[Finding]) -> None:
    """Print figures by region, a verdict and what the emphasis costs and gains, for each target."""
    from tailwise.report.dial import dial_of

    for finding in findings:
        if len(findings) > 1:
            typer.echo(printable(f"{finding.target}:"))
        _print_regions(finding)
        verdict = finding.verdict
        print_words(verdict.headline)
        if verdict.advice:
            print_words(f"What to do: {verdict.advice}")
        for sentence in verdict.sentences:
            print_words(f"- {sentence}")
        if (dial := dial_of(finding.lineup.ours)) is not None:
            print_words(dial.text)


def findings_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the findings for JSON: those of one target at the top level, of several in a list."""
    if len(findings) > 1:
        return {"targets": [finding.to_dict() for finding in findings]}
    return findings[0].to_dict() if findings else {"target": None, "verdict": None}


def coverage_by(tables: Mapping[str, RunningCoverage]) -> list[dict[str, Any]]:
    """Return coverage and width of each target's intervals by the values of a column, ready for JSON."""
    return [
        {"target": target, **{str(name): value for name, value in row.items()}}
        for target, coverage in tables.items()
        for row in coverage.table().to_dict(orient="records")
    ]


def print_coverage_by(column: str, rows: Sequence[dict[str, Any]], coverage: float) -> None:
    """Print coverage with its 95% interval, and width, by the values of a column."""
    from tailwise.report.formatting import level, number

    header = ["target", column, "rows", f"{level(coverage)} coverage", "its 95% interval", "width"]
    lines = []
    for row in rows:
        ends = f"{row['coverage_low']:.1%} to {row['coverage_high']:.1%}"
        told = [row["target"], row["value"], str(row["rows"]), f"{row['coverage']:.1%}", ends]
        lines.append([*told, number(row["width"])])
    print_table(header, lines, names=2)


def _print_regions(finding: Finding) -> None:
    from tailwise.report.formatting import level, number

    promised = level(finding.lineup.ours.coverage)
    rows = []
    for scored, table in zip(finding.lineup.all, finding.tables, strict=True):
        for region, row in table.iterrows():
            if row["n"] > 0:
                figures = [number(row["mae"]), number(row["rmse"]), number(row["nll"])]
                shown = [f"{row['n']:.0f}", *figures, f"{row['coverage']:.1%}", number(row["width"])]
                rows.append([scored.title if region == "all" else "", str(region), *shown])
    header = ["method", "region", "rows", "MAE", "RMSE", "NLL", f"{promised} coverage", "width"]
    print_table(header, rows, names=2)


def page_of(model: TailRegressor, finding: Finding, inputs: pd.DataFrame | None, **about: Any) -> str:
    """Return the HTML page about one target; `about` are facts of `tailwise.report.page.facts_of`."""
    from tailwise.model.matching import match_inputs
    from tailwise.report.drivers import drivers_of
    from tailwise.report.page import facts_of, model_page

    about = {name: value for name, value in about.items() if value is not None}
    scored = finding.lineup.ours
    facts = facts_of(model, scored, target=finding.target, command=command_line(), **about)
    drivers = None
    if inputs is not None:
        rows = match_inputs(model.model_, inputs, about["source"])
        drivers = drivers_of(model, scored, rows, place=about.get("place", 0), **about.get("dial", {}))
    return model_page(finding.lineup, finding.verdict, facts, inputs, drivers)


def emphasis_of(model: TailRegressor, dial: Mapping[str, Any] | None = None) -> Any:
    """Return the emphasis in use for JSON, by target if there are several; None under a label prior."""
    if dial:
        return dial.get("emphasis")
    chosen = model.emphasis_
    if not isinstance(chosen, list):
        return chosen
    return dict(zip(model.target_names_ or range(len(chosen)), chosen, strict=True))
