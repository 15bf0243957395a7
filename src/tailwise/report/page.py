"""The page about a fitted model: can its tail be trusted, what does it gain there, and what does it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tailwise.core.metrics import REGIONS
from tailwise.methods import get_method
from tailwise.report.charts import ModelCharts
from tailwise.report.formatting import number, pair
from tailwise.report.html import render
from tailwise.report.scoring import Scored, paired_difference

if TYPE_CHECKING:
    from tailwise.estimator.regressor import TailRegressor
    from tailwise.networks.parts import Method
    from tailwise.report.verdict import Verdict


@dataclass(frozen=True)
class Facts:
    """How a model was trained and how to train it again: everything on its page that is not a score."""

    target: str
    source: str
    method: str
    train_rows: int
    features: int
    command: str
    parts: Method
    intervals: str
    test_source: str = "held out at random, the same share of rare and common labels"
    weight: str | None = None
    """Column with the weights of the training rows, if there is one."""
    trained_here: bool = True
    """Whether the model was trained on `source`, and the baseline in the same way on the same rows."""
    epochs: int = 0
    best_epoch: int = 0
    seconds: float = 0.0
    seed: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


def facts_of(
    model: TailRegressor,
    scored: Scored,
    *,
    target: str,
    place: int = 0,
    dial: Mapping[str, Any] | None = None,
    **about: Any,
) -> Facts:
    """Return the facts about one target of a model, the `place`-th; `about` sets other fields of `Facts`.

    `dial` has the emphasis or the label prior of `scored`, unless it is the model's own.
    """
    settings = ("base", "folds", "backbone", "epochs", "batch_size", "lr", "monitor")
    return Facts(
        target=target,
        method=model.method,
        train_rows=int(scored.bins.counts.sum()),
        features=int(model.n_features_in_),
        parts=get_method(model.method).parts.with_options(**(model.method_options or {})),
        intervals=model.explain_intervals(scored.coverage, target=place, **(dial or {})),
        epochs=max(len(history.history) for history in model.histories_),
        best_epoch=max(history.best_epoch for history in model.histories_),
        seed=model.random_state if isinstance(model.random_state, int) else None,
        settings={name: getattr(model, name) for name in settings},
        **about,
    )


def model_page(
    scored: Scored,
    verdict: Verdict,
    facts: Facts,
    baseline: Scored | None = None,
    base: Scored | None = None,
) -> str:
    """Return the HTML page about a fitted model, beside a baseline and the model's base if they are given.

    `verdict` is what `judge` returns for the same model and baseline.
    """
    charts = ModelCharts(scored, baseline, facts.target, facts.method, base)
    parts = facts.parts.for_bins(scored.bins)
    return render(
        "model.html",
        facts=facts,
        title=f"{facts.target}: {scored.title} on {facts.source}",
        method=get_method(facts.method),
        opening=_opening(scored, facts, baseline),
        verdict=verdict,
        histogram=charts.histogram(),
        charts=charts.all(),
        rows=_region_rows(scored, [s for s in (baseline, base) if s is not None]),
        scored=scored,
        baseline=baseline,
        base=base,
        cost=_cost_text(scored, baseline),
        bins=scored.bins.explain(),
        weights=charts.weights(parts),
        smooths=parts.smoothing is not None and parts.smoothing.kernel is not None,
        details=[text for text in (_weights_text(parts), _smoothing_text(parts)) if text],
        settings={k: v for k, v in facts.settings.items() if v is not None},
    )


def _opening(scored: Scored, facts: Facts, baseline: Scored | None) -> str:
    """Say what was trained on what, and on which rows it is measured."""
    table = f" of {facts.source}" if facts.trained_here else ""
    if facts.weight is not None:
        table += f", weighted by {facts.weight},"
    first = (
        f"{scored.title} was trained on {facts.train_rows:,} rows{table} to predict "
        f"{facts.target} from {facts.features} column{'s' if facts.features != 1 else ''}."
    )
    beside = "" if baseline is None else f", beside {baseline.title}"
    measured = f"All figures below are measured on {scored.y.size:,}"
    if facts.trained_here:
        same = ": one plain network trained on the same rows, without base and dial" if beside else ""
        return f"{first} {measured} rows it has not seen ({facts.test_source}){beside}{same}."
    models = "the model was not" if baseline is None else "neither model was"
    return (
        f"{first} {measured} {facts.test_source}{beside}. They hold only if {models} trained on these rows."
    )


def _region_rows(s: Scored, others: Sequence[Scored]) -> list[dict[str, Any]]:
    """Return the rows of the table by region: our figures, and those of other models with the difference."""
    ours, tables = s.by_region(), [other.by_region() for other in others]
    return [
        {
            "region": region,
            "n": int(s.mask(region).sum()),
            "ours": ours.loc[region].to_dict(),
            "others": [
                {
                    "title": other.title,
                    "figures": table.loc[region].to_dict(),
                    "difference": paired_difference(s.error, other.error, s.mask(region)),
                }
                for other, table in zip(others, tables, strict=True)
            ],
        }
        for region in REGIONS
        if s.mask(region).any()
    ]


def _cost_text(s: Scored, base: Scored | None) -> str:
    """Say what the model costs or gains for common labels."""
    if base is None:
        return ""
    many = paired_difference(s.error, base.error, s.mask("many"))
    if many.n == 0:
        return "No test row has a many-shot label, so the cost for common labels is unknown."
    if many.value == 0:
        return (
            f"In the many-shot region {s.title} and {base.title} have the same mean absolute error, "
            f"{number(many.ours)}."
        )
    word = "higher" if many.value > 0 else "lower"
    figures = " against ".join(pair(many.ours, many.theirs))
    error = f", which is within its error of ±\u00a0{number(many.half)}: undecided" if many.undecided else ""
    text = (
        f"In the many-shot region the mean absolute error of {s.title} is {number(abs(many.value))} {word} "
        f"than that of {base.title} ({figures}){error}."
    )
    if 2 * many.n > s.y.size:
        text += " Most test rows are of this region, so the average over all rows mostly reflects it."
    return text


def _weights_text(parts: Method) -> str:
    """Say by which formula rows are weighted and where the weights act."""
    if parts.reweight == "none":
        return ""
    acts = {
        "likelihood": "the loss of each row",
        "pseudo-count": "the pseudo-counts of the head",
        "both": "the loss of each row and the pseudo-counts of the head",
    }[parts.reweight]
    w = parts.weights
    if w.form == "dense":
        return f"A row's weight falls linearly with the label density (slope {w.power:g}) and acts on {acts}."
    if w.form != "paper":
        return f"Rows are weighted by the form {w.form!r} with power {w.power:g}. The weights act on {acts}."
    smoothed = "" if w.kernel is None else f", smoothed by a {w.kernel} kernel over {2 * w.radius + 1} bins"
    return f"A row's weight is the label density{smoothed}, to the power -{w.power:g}. It acts on {acts}."


def _smoothing_text(parts: Method) -> str:
    """Say how features are smoothed over label bins."""
    s = parts.smoothing
    if s is None or s.kernel is None:
        return ""
    return (
        f"Features are smoothed by a {s.kernel} kernel over {2 * s.radius + 1} bins, with a bandwidth of "
        f"{number(s.bandwidth)} bins."
    )
