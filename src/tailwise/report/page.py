"""The page about a fitted model: can its tail be trusted, what did it gain there, and what did it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tailwise.core.metrics import REGIONS
from tailwise.methods import get_method
from tailwise.report.charts import ModelCharts
from tailwise.report.formatting import number, pair
from tailwise.report.html import render
from tailwise.report.scoring import Scored, compared
from tailwise.report.verdict import Verdict

if TYPE_CHECKING:
    from tailwise.estimator.regressor import TailRegressor
    from tailwise.networks.parts import Method


@dataclass(frozen=True)
class Facts:
    """What was trained on what, and how to do it again; everything a page says that is not a score."""

    target: str
    source: str
    method: str
    train_rows: int
    features: int
    command: str
    parts: Method
    intervals: str
    test_source: str = "kept aside at random, rare and common labels in the same share"
    weight: str | None = None
    """Column of the weights by which `train_rows` were counted, if there was one."""
    trained_here: bool = True
    """Whether `source` is what was trained on, and a baseline is of the same recipe and rows."""
    epochs: int = 0
    best_epoch: int = 0
    seconds: float = 0.0
    seed: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


def facts_of(model: TailRegressor, scored: Scored, *, target: str, place: int = 0, **about: Any) -> Facts:
    """Return the facts about one target of a model, the `place`-th; `about` sets other fields of `Facts`."""
    settings = ("backbone", "epochs", "batch_size", "lr", "monitor")
    return Facts(
        target=target,
        method=model.method,
        train_rows=int(scored.bins.counts.sum()),
        features=int(model.n_features_in_),
        parts=get_method(model.method).parts.with_options(**(model.method_options or {})),
        intervals=model.explain_intervals(scored.coverage, target=place),
        epochs=len(model.history_.history),
        best_epoch=model.history_.best_epoch,
        seed=model.random_state if isinstance(model.random_state, int) else None,
        settings={name: getattr(model, name) for name in settings},
        **about,
    )


def model_page(scored: Scored, verdict: Verdict, facts: Facts, baseline: Scored | None = None) -> str:
    """Return the HTML page about a fitted model, beside a baseline if one is given.

    `verdict` is what `judge` returns for the same two arguments.
    """
    charts = ModelCharts(scored, baseline, facts.target, facts.method)
    return render(
        "model.html",
        facts=facts,
        title=f"{facts.target}: {scored.title} on {facts.source}",
        method=get_method(facts.method),
        opening=_opening(scored, facts, baseline),
        verdict=verdict,
        histogram=charts.histogram(),
        charts=charts.all(),
        rows=_region_rows(scored, baseline),
        scored=scored,
        baseline=baseline,
        cost=_cost_text(scored, baseline),
        bins=scored.bins.explain(),
        weights=charts.weights(facts.parts),
        smoothing=_smoothing_words(facts.parts),
        settings={k: v for k, v in facts.settings.items() if v is not None},
    )


def _opening(scored: Scored, facts: Facts, baseline: Scored | None) -> list[str]:
    """What was trained on what, in two sentences."""
    table = f" of {facts.source}" if facts.trained_here else ""
    if facts.weight is not None:
        table += f", each counted as often as {facts.weight} says,"
    first = (
        f"{scored.title} was trained on {facts.train_rows:,} rows{table} to predict "
        f"{facts.target} from {facts.features} column{'s' if facts.features != 1 else ''}."
    )
    beside = "" if baseline is None else f", beside {baseline.title}"
    if beside and facts.trained_here:
        beside += " trained by the same recipe on the same rows"
    measured = f"Everything below is measured on {scored.y.size:,} "
    if not facts.trained_here:  # nothing but the word of whoever gave them says that these rows are new
        sure = "them" if baseline is None else "them, nor the other model"
        return [first, f"{measured}{facts.test_source}{beside}, and holds if it has not seen {sure}."]
    return [first, f"{measured}rows it has not seen ({facts.test_source}){beside}."]


def _region_rows(s: Scored, base: Scored | None) -> list[dict[str, Any]]:
    """Rows of the table by region: ours, the baseline's, and the difference that chance leaves open."""
    ours, theirs = s.by_region(), None if base is None else base.by_region()
    rows = []
    for region in REGIONS:
        if not s.rows(region).any():
            continue
        row: dict[str, Any] = {
            "region": region,
            "n": int(s.rows(region).sum()),
            "ours": ours.loc[region].to_dict(),
        }
        if base is not None and theirs is not None:
            row["theirs"] = theirs.loc[region].to_dict()
            row["change"] = compared(s.error, base.error, s.rows(region))
        rows.append(row)
    return rows


def _cost_text(s: Scored, base: Scored | None) -> str:
    if base is None:
        return ""
    many = compared(s.error, base.error, s.rows("many"))
    if many.n == 0:
        return "No test row has a many-shot label, so there is no cost to state there."
    if many.difference == 0:
        return (
            f"In the many-shot region {s.title} and {base.title} have the same mean absolute error, "
            f"{number(many.ours)}."
        )
    word = "costs" if many.difference > 0 else "gains"
    sure = "" if many.clear else ", which chance in the test rows would explain"
    figures = " against ".join(pair(many.ours, many.theirs))
    return (
        f"In the many-shot region {s.title} {word} {number(abs(many.difference))} in mean absolute error "
        f"against {base.title} ({figures}){sure}. The plain average over all rows is decided by common "
        "labels; compare regions, not averages."
    )


def _smoothing_words(parts: Method) -> str:
    s = parts.smoothing
    if s is None:
        return "This method smooths no features over label bins."
    settings = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in vars(s).items())
    return f"Features are smoothed over neighbouring label bins: {settings}."
