"""The self-contained HTML pages: one file each, no network, light and dark, for screen and paper."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

from tailwise._version import __version__
from tailwise.labels import LabelBins, label_weights
from tailwise.methods import get_method
from tailwise.report import plots
from tailwise.report.evidence import LEVELS, Scored, compared, region_names
from tailwise.report.svg import inline, new_figure, page_style
from tailwise.report.verdict import judge, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tailwise.benchmark.comparison import Results
    from tailwise.method import Method

REGION_ORDER = ("all", "many", "medium", "few")


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tailwise.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = lambda value: "–" if value is None or math.isnan(value) else number(value)
    environment.filters["percent"] = lambda value: "–" if math.isnan(value) else f"{100 * value:.1f}%"
    return environment


@dataclass(frozen=True)
class Chart:
    """A picture on a page: its heading, what to look for, and the SVG."""

    title: str
    text: str
    svg: str


# -- one model -----------------------------------------------------------------------------------


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
    test_source: str = "rows held out at random, the same share of every label bin"
    epochs: int = 0
    best_epoch: int = 0
    seconds: float = 0.0
    seed: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


def model_page(scored: Scored, facts: Facts, baseline: Scored | None = None) -> str:
    """Return the page about a fitted model, beside a baseline trained by the same recipe if given."""
    verdict = judge(scored, baseline)
    both = {scored.title: scored, **({} if baseline is None else {baseline.title: baseline})}
    method = get_method(facts.method)
    return (
        _environment()
        .get_template("model.html")
        .render(
            version=__version__,
            facts=facts,
            title=f"{facts.target}: {scored.title} on {facts.source}",
            method=method,
            opening=_opening(scored, facts, baseline),
            verdict=verdict,
            histogram=_histogram(scored, facts.target),
            charts=_charts(both, scored, baseline, facts),
            rows=_region_rows(scored, baseline),
            scored=scored,
            baseline=baseline,
            cost=_cost_text(scored, baseline),
            bins=scored.bins.explain(),
            weights=_weights(scored.bins, facts),
            smoothing=_smoothing_words(facts.parts),
            settings={k: v for k, v in facts.settings.items() if v is not None},
        )
    )


def _opening(scored: Scored, facts: Facts, baseline: Scored | None) -> list[str]:
    """What was trained on what, in two sentences."""
    first = (
        f"{scored.title} was trained on {facts.train_rows:,} rows of {facts.source} to predict "
        f"{facts.target} from {facts.features} column{'s' if facts.features != 1 else ''}."
    )
    beside = (
        "" if baseline is None else f", beside {baseline.title} trained by the same recipe on the same rows"
    )
    unseen = f"{scored.y.size:,} rows it has not seen ({facts.test_source})"
    second = f"Everything below is measured on {unseen}{beside}."
    return [first, second]


def _histogram(s: Scored, target: str) -> Chart:
    counts, regions = s.bins.counts, s.bins.regions(s.many, s.few)
    shares = {r: int(counts[regions == r].sum()) for r in region_names(list(regions))}
    words = ", ".join(f"{n:,} rows in {r}-shot bins" for r, n in shares.items())
    alt = f"Histogram of {target} in the training rows, {len(s.bins)} bins on a log scale: {words}."
    with page_style():
        ax = plots.label_histogram(s.bins, new_figure(5.4, 2.7), label=target, many=s.many, few=s.few)
        return _chart("label-histogram", ax, "How common each label is", f"{words}.", alt)


def _chart(name: str, ax: Any, title: str, text: str, alt: str) -> Chart:
    return Chart(title, text, inline(ax.figure, name, alt))


def _charts(both: Mapping[str, Scored], s: Scored, base: Scored | None, facts: Facts) -> list[Chart]:
    with page_style():
        return [chart for chart in _drawn(both, s, base, facts) if chart is not None]


def _drawn(both: Mapping[str, Scored], s: Scored, base: Scored | None, facts: Facts) -> list[Chart | None]:
    target, names = facts.target, " and ".join(both)
    shared: dict[str, Any] = {"bins": s.bins, "label": target, "many": s.many, "few": s.few}
    tables = {name: one.by_region() for name, one in both.items()}
    regions = region_names(list(s.region))
    level = f"{s.coverage:.0%}"
    curves = {name: one.along_label() for name, one in both.items()}
    at = int(curves[s.title]["mae"].to_numpy().argmax())
    worst = curves[s.title].iloc[at]
    error = _chart(
        "error-by-label",
        plots.error_by_label(curves, new_figure(), **shared),
        "Error along the label",
        "Each point is the mean absolute error of at least five test rows with labels near it. "
        f"{s.title} is worst near {number(worst['center'])}, with {number(worst['mae'])}.",
        f"Lines of mean absolute error against {target} for {names}; few-shot ranges are shaded. "
        f"{s.title} is worst near {number(worst['center'])}, with {number(worst['mae'])}.",
    )
    scatter = _chart(
        "predicted-vs-true",
        plots.predicted_vs_true(s.y, s.mean, s.lower, s.upper, s.region, new_figure(5.4, 4.2), label=target),
        "Predicted against true",
        f"Each point is a test row, its bar the {level} interval; rows of rare labels are all shown if "
        "there is room, "
        "common ones are a sample. Points below the dashed line are predicted too low.",
        f"Scatter of predicted against true {target} with {level} intervals by region. {_bias_words(s)}",
    )
    covered = ", ".join(
        f"{name}: " + ", ".join(f"{r} {_share(t, r)}" for r in regions) for name, t in tables.items()
    )
    coverage = _chart(
        "coverage-by-region",
        plots.coverage_by_region(tables, new_figure(), level=s.coverage, regions=regions),
        "Do the intervals hold?",
        f"The share of {level} intervals that hold the true label, by how common the label is; thin bars "
        "are what "
        "chance in the test rows leaves open.",
        f"Bars of coverage by region. {covered}.",
    )
    width = _chart(
        "width-by-region",
        plots.width_by_region(tables, new_figure(), level=s.coverage, regions=regions),
        "How wide are they?",
        f"The mean width of {level} intervals. Wide intervals that hold are honest; narrow ones that hold "
        "are better.",
        "Bars of mean interval width by region. "
        + "; ".join(f"{n}: " + ", ".join(f"{r} {_width(t, r)}" for r in regions) for n, t in tables.items())
        + ".",
    )
    thinned = {name: one.sparsification() for name, one in both.items()}
    mine = thinned[s.title]
    half = float(np.interp(0.5, mine.removed, mine.error))
    kept = (
        f"Without the least certain half of the rows, the error of {s.title} goes from "
        f"{number(float(mine.error[0]))} "
        f"to {number(half)}."
    )
    sparse = _chart(
        "sparsification",
        plots.sparsification_curves(thinned, new_figure()),
        "Does it know when it is wrong?",
        f"{kept} The closer a line is to its dotted one, the better its uncertainty ranks its errors; a "
        "flat line "
        "knows nothing.",
        f"Sparsification curves for {names}. {kept}",
    )
    reliability = _chart(
        "reliability",
        plots.reliability_diagram(
            {
                **{f"{name}, all": one.reliability() for name, one in both.items()},
                **{
                    f"{s.title}, {r}-shot": s.reliability(r)
                    for r in regions
                    if r != "many" and s.rows(r).sum() >= 10
                },
            },
            LEVELS,
            new_figure(5.4, 3.8),
        ),
        "Reliability",
        "How many intervals hold against how many should, at every level. Below the diagonal is "
        "overconfident, "
        "above it is wider than need be.",
        f"Reliability diagram for {names}: at {level}, {s.inside.mean():.0%} of the intervals of {s.title} "
        "hold.",
    )
    calibration = _chart(
        "calibration",
        plots.reliability_diagram(
            {
                "as the network gave it": s.own_reliability(calibrated=False),
                "scaled on held-out rows": s.own_reliability(calibrated=True),
                "intervals in force": s.reliability(),
            },
            LEVELS,
            new_figure(5.4, 3.8),
        ),
        "Calibration, before and after",
        _calibration_words(s),
        f"Reliability diagram of {s.title} before scaling, after it, and of its intervals. "
        f"{_calibration_words(s)}",
    )
    return [error, scatter, coverage, width, sparse, reliability, _parts_chart(s, facts, shared), calibration]


def _parts_chart(s: Scored, facts: Facts, shared: Mapping[str, Any]) -> Chart | None:
    """The two parts of the variance along the label, for a method that tells them apart."""
    if get_method(facts.method).uncertainty != "aleatoric and epistemic":
        return None
    parts = s.along_label()
    share = float((parts["epistemic_std"] ** 2).mean() / (parts["std"] ** 2).mean())
    shown = "less than 1%" if share < 0.01 else f"{share:.0%}"
    words = f"Averaged along the label, {shown} of the predicted variance is epistemic."
    return _chart(
        "variance-parts",
        plots.variance_parts(parts, new_figure(), **shared),
        "Noise or lack of data?",
        f"The epistemic part shrinks with more rows, the aleatoric part does not. {words}",
        f"Lines of aleatoric and epistemic standard deviation and of the error along {facts.target}. {words}",
    )


def _share(table: pd.DataFrame, region: str) -> str:
    return f"{_cell(table, region, 'coverage'):.0%}"


def _width(table: pd.DataFrame, region: str) -> str:
    return number(_cell(table, region, "width"))


def _cell(table: pd.DataFrame, region: str, column: str) -> float:
    return float(cast("float", table.loc[region, column]))


def _bias_words(s: Scored) -> str:
    bias = {r: float((s.mean - s.y)[s.rows(r)].mean()) for r in region_names(list(s.region))}
    return "Mean signed error: " + ", ".join(f"{r}-shot {number(b)}" for r, b in bias.items()) + "."


def _calibration_words(s: Scored) -> str:
    at = LEVELS.index(0.9)
    before = s.own_reliability(calibrated=False)[at]
    after, force = s.own_reliability(calibrated=True)[at], s.reliability()[at]
    return (
        f"At 90%, {before:.0%} of the network's own intervals hold, {after:.0%} after scaling, and "
        f"{force:.0%} of the "
        "intervals in force. Scaling and intervals weigh rare labels as much as common ones, so that over "
        "all rows "
        "they may come out wider than 90%."
    )


def _region_rows(s: Scored, base: Scored | None) -> list[dict[str, Any]]:
    """Rows of the table by region: ours, the baseline's, and the difference that chance leaves open."""
    ours, theirs = s.by_region(), None if base is None else base.by_region()
    rows = []
    for region in REGION_ORDER:
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
    word = "costs" if many.difference > 0 else "gains"
    sure = "" if many.clear else ", which chance in the test rows would explain"
    return (
        f"In the many-shot region {s.title} {word} {number(abs(many.difference))} in mean absolute error "
        "against "
        f"{base.title} ({number(many.ours)} against {number(many.theirs)}){sure}. The plain average over "
        "all rows is "
        "decided by common labels; compare regions, not averages."
    )


def _weights(bins: LabelBins, facts: Facts) -> Chart | None:
    """The weights of label bins, if the method uses any."""
    parts = facts.parts
    if parts.reweight == "none":
        return None
    w = parts.weights
    values = label_weights(
        bins,
        kernel=w.kernel,
        bandwidth=w.bandwidth,
        radius=w.radius,
        power=w.power,
        form=w.form,
        clip=w.clip,
    )
    acts = {
        "likelihood": "each row's loss",
        "pseudo-count": "the pseudo-counts of the head",
        "both": "each row's loss and the pseudo-counts of the head",
    }[parts.reweight]
    smooth = "no smoothing" if w.kernel is None else f"a {w.kernel} kernel over {2 * w.radius + 1} bins"
    text = (
        f"Weights of p^(-{w.power:g}) of the label density ({smooth}), acting on {acts}. They run from "
        f"{number(float(values.min()))} to {number(float(values.max()))}; the average training row has 1."
    )
    with page_style():
        ax = plots.bin_weights(bins, values, new_figure(5.4, 2.4), label=facts.target)
        return _chart("bin-weights", ax, "Weights", text, f"Weight of a row along {facts.target}. {text}")


def _smoothing_words(parts: Method) -> str:
    s = parts.smoothing
    if s is None:
        return "This method smooths no features over label bins."
    settings = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in vars(s).items())
    return f"Features are smoothed over neighbouring label bins: {settings}."


# -- many methods --------------------------------------------------------------------------------


def comparison_page(results: Results, *, title: str, command: str) -> str:
    """Return the page that ranks methods, with error bars over seeds, for each data set."""
    from tailwise.benchmark.comparison import Figure as Number

    shown = (
        ("mae", "few", "Mean absolute error, few-shot labels"),
        ("mae", "all", "Mean absolute error, all test rows"),
        ("nll", "few", "Negative log-likelihood, few-shot labels, calibrated"),
    )
    sections = []
    with page_style():
        for data in results.data:
            charts = []
            for metric, region, heading in shown:
                figure = Number(metric, region, calibrated=metric == "nll")
                table = _ranking(results, figure, data)
                if table.empty:
                    continue
                best = f"{table.index[0]} is first with {number(float(table['mean'].iloc[0]))}"
                charts.append(
                    _chart(
                        f"{_slug(data)}-{metric}-{region}",
                        plots.method_ranking(table, metric=heading.split(",")[0].lower()),
                        heading,
                        best + "; bars are standard deviations over seeds.",
                        f"Methods by {heading.lower()} on {data}, best at the top. {best}.",
                    )
                )
            sections.append({"data": data, "charts": charts, "rows": _method_rows(results, data)})
    seeds = sorted({record["seed"] for record in results.records})
    return (
        _environment()
        .get_template("comparison.html")
        .render(
            version=__version__,
            title=title,
            command=command,
            sections=sections,
            methods=[results.titles[m] for m in results.methods],
            seeds=seeds,
            verdict=comparison_verdict(results),
            recipe=results.records[0]["recipe"],
            rows=results.records[0]["rows"],
        )
    )


def _ranking(results: Results, figure: Any, data: str) -> pd.DataFrame:
    rows = {
        results.titles[m]: results.mean_std(figure, data, m) for m in results.methods if results.runs(data, m)
    }
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "half"]).dropna(subset="mean")
    return table.sort_values("mean", kind="stable")


def _method_rows(results: Results, data: str) -> list[dict[str, Any]]:
    from tailwise.benchmark.comparison import Figure as Number

    rows = []
    for method in results.methods:
        if not results.runs(data, method):
            continue
        cells = []
        for metric, region in COLUMNS:
            mean, std = results.mean_std(Number(metric, region, calibrated=True), data, method)
            cells.append(
                "–" if math.isnan(mean) else number(mean) + ("" if math.isnan(std) else f" ± {std:.2g}")
            )
        rows.append({"title": results.titles[method], "cells": cells})
    return rows


COLUMNS = (
    ("mae", "all"), ("mae", "many"), ("mae", "medium"), ("mae", "few"), ("nll", "all"), ("nll", "few"),
    ("coverage", "all"), ("coverage", "few"),
)  # fmt: skip


def comparison_verdict(results: Results) -> list[str]:
    """Say for each data set who is first in the tail and whether seeds alone would explain it."""
    from tailwise.benchmark.comparison import Figure as Number

    lines = []
    for data in results.data:
        for region, words in (("few", "for few-shot labels"), ("all", "over all test rows")):
            table = _ranking(results, Number("mae", region), data)
            if table.empty:
                lines.append(f"{data}: no test row {words}, so the tail cannot be judged.")
                continue
            first = number(float(table["mean"].iloc[0]))
            line = f"{data}: {table.index[0]} has the lowest error {words} ({first})"
            if len(table) > 1:
                gap = float(table["mean"].iloc[1] - table["mean"].iloc[0])
                noise = float(np.nanmax([*table["half"].iloc[:2], 0.0]))
                line += f", {table.index[1]} is next ({number(float(table['mean'].iloc[1]))})"
                if table["half"].isna().any():
                    line += "; one seed cannot tell whether that is more than chance"
                elif gap <= noise:
                    line += "; the gap is within the spread over seeds"
            lines.append(line + ".")
    return lines


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text) or "data"


# -- the demonstration ---------------------------------------------------------------------------


class DemoFigures(Protocol):
    """What the page of the demonstration reads of its result."""

    @property
    def bins(self) -> LabelBins:
        """Label bins of the first seed."""

    @property
    def sizes(self) -> dict[str, int]:
        """Rows of each part."""

    @property
    def runs(self) -> Sequence[Any]:
        """Finished runs, each with its seed."""

    def methods(self) -> list[str]:
        """Names of the methods."""

    def mean(self, method: str) -> pd.DataFrame:
        """Figures by region, averaged over seeds."""

    def spread(self, method: str) -> pd.DataFrame:
        """Their standard deviation over seeds."""


def embedded(figure: Figure) -> str:
    """Return a figure as a PNG data address, to be put into an `img` element."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def demo_page(result: DemoFigures, figure: Figure, verdict: str) -> str:
    """Return the page of the demonstration."""
    return (
        _environment()
        .get_template("demo.html")
        .render(
            version=__version__,
            verdict=verdict,
            picture=embedded(figure),
            sizes=result.sizes,
            bins=result.bins.explain(),
            seeds=len({run.seed for run in result.runs}),
            regions=["all", "many", "medium", "few"],
            metrics=["mae", "gm", "nll", "ause", "coverage"],
            methods=[
                {
                    "title": get_method(n).title,
                    "about": get_method(n).about,
                    "mean": result.mean(n),
                    "spread": result.spread(n),
                }
                for n in result.methods()
            ],
        )
    )
