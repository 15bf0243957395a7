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

    from tailwise.estimator import TailRegressor
    from tailwise.report.lineup import Lineup
    from tailwise.report.scores import Scores
    from tailwise.report.verdict import Verdict


@dataclass(frozen=True)
class Finding:
    """Scores of one target: a model and its baselines, and the verdict on them."""

    target: str
    lineup: Lineup

    @cached_property
    def verdict(self) -> Verdict:
        """What the scores show."""
        from tailwise.report.verdict import judge

        return judge(self.lineup)

    @property
    def tables(self) -> Sequence[pd.DataFrame]:
        """Figures by region of the model and each baseline, in the order of `Lineup.all`."""
        return [scores.by_region for scores in self.lineup.all]

    def to_dict(self) -> dict[str, Any]:
        """Return figures by region and the verdict, ready for JSON."""
        names = ("regions", *self.lineup.baselines)
        regions = {k: v.to_dict(orient="index") for k, v in zip(names, self.tables, strict=True)}
        return {"target": self.target, "verdict": self.verdict.to_dict(), **regions}


def findings_of(
    model: TailRegressor,
    inputs: pd.DataFrame,
    labels: pd.DataFrame,
    coverage: float,
    *,
    places: Mapping[str, int] | None = None,
    others: Mapping[str, Scores] | None = None,
    **dial: Any,
) -> list[Finding]:
    """Score each target of a model beside its baselines, on rows that it was not trained on.

    `places` has the number of each target in the model, and `others` the scores of a second model by target.
    """
    from tailwise.report.lineup import line_up
    from tailwise.report.scores import Seen

    rows, findings = Seen(model, inputs), []
    for k, name in enumerate(map(str, labels)):
        place, other = (places or {}).get(name, k), (others or {}).get(name)
        lineup = line_up(model, rows, labels[name], coverage, target=place, other=other, **dial)
        findings.append(Finding(name, lineup))
    return findings


def print_findings(findings: Sequence[Finding]) -> None:
    """Print figures by region, a verdict and what the emphasis costs and gains, for each target."""
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
        if (dial := finding.lineup.ours.dial) is not None:
            print_words(dial.text)


def findings_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the findings for JSON: those of one target at the top level, of several in a list."""
    if len(findings) > 1:
        return {"targets": [finding.to_dict() for finding in findings]}
    return findings[0].to_dict() if findings else {"target": None, "verdict": None}


def _print_regions(finding: Finding) -> None:
    from tailwise.report.scores import FIGURES, PRINTED
    from tailwise.report.wording import level

    figures = {name: FIGURES[name] for name in PRINTED}
    rows = []
    for scores, table in zip(finding.lineup.all, finding.tables, strict=True):
        for region, row in table.iterrows():
            if row["n"] > 0:
                shown = [f"{row['n']:.0f}", *(figure.text(row[name]) for name, figure in figures.items())]
                rows.append([scores.title if region == "all" else "", str(region), *shown])
    titles = {name: figure.title for name, figure in figures.items()}
    titles["coverage"] = f"{level(finding.lineup.ours.coverage)} coverage"
    print_table(["method", "region", "rows", *titles.values()], rows, names=2)


def page_of(model: TailRegressor, finding: Finding, inputs: pd.DataFrame, **about: Any) -> str:
    """Return the HTML page about one target; `about` are fields of `tailwise.report.page.About`."""
    from tailwise.report import page

    scores, known = finding.lineup.ours, {name: value for name, value in about.items() if value is not None}
    facts = page.About(finding.target, command=command_line(), **known)
    drivers = page.drivers_of(model, scores, place=facts.place, **facts.dial)
    return page.model_page(model, finding.lineup, finding.verdict, facts, inputs, drivers)


def emphasis_of(model: TailRegressor, dial: Mapping[str, Any] | None = None) -> Any:
    """Return the emphasis in use for JSON, by target if there are several; None under a label prior."""
    if dial:
        return dial.get("emphasis")
    chosen = model.emphasis_
    if not isinstance(chosen, list):
        return chosen
    return dict(zip(model.target_names_ or range(len(chosen)), chosen, strict=True))
