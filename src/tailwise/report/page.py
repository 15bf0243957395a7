"""The page about a fitted model: can its tail be trusted, what does it gain there, and what does it cost."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tailwise.labels.kernels import Window
from tailwise.methods import get_method
from tailwise.metrics.regions import REGIONS
from tailwise.networks.weights import DenseWeights, DensityWeights, Weights
from tailwise.report.answers import answers_of, row_tables
from tailwise.report.baselines import Lineup
from tailwise.report.charts import ModelCharts
from tailwise.report.contrasts import contrast
from tailwise.report.dial import Dial, dial_of
from tailwise.report.drivers import Drivers
from tailwise.report.formatting import number
from tailwise.report.html import render
from tailwise.report.scoring import Scored

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.estimator import TailRegressor
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
    epochs: Sequence[int] = ()
    """Epochs that each network was trained for."""
    best_epochs: Sequence[int] = ()
    """Epoch of each network whose weights were kept."""
    seconds: float = 0.0
    seed: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    pictures: bool = False
    """Whether the inputs are the paths of pictures."""


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
        epochs=[len(history.history) for history in model.histories_],
        best_epochs=[history.best_epoch for history in model.histories_],
        seed=model.random_state if isinstance(model.random_state, int) else None,
        settings={name: getattr(model, name) for name in settings},
        pictures=model.takes_pictures,
        **about,
    )


def model_page(
    lineup: Lineup,
    verdict: Verdict,
    facts: Facts,
    inputs: pd.DataFrame | None = None,
    drivers: Drivers | None = None,
) -> str:
    """Return the HTML page about a fitted model and its baselines.

    `verdict` is what `judge` returns for the same models. `inputs` are the test rows, for the table of those
    with the largest errors. `drivers` is what `drivers_of` returns for them.
    """
    scored, dial = lineup.ours, dial_of(lineup.ours)
    charts = ModelCharts(lineup, facts.target, facts.method, dial)
    weights, smoothing = (
        facts.parts.make("weights", scored.bins),
        facts.parts.make("smoothing", 1, scored.bins),
    )
    window = None if smoothing is None else smoothing.window
    details = (_weights_text(weights), _smoothing_text(window))
    return render(
        "model.html",
        script="dial.js",
        facts=facts,
        title=f"{facts.target}: {scored.title} on {facts.source}",
        method=get_method(facts.method),
        opening=_opening(scored, facts),
        answers=answers_of(lineup),
        verdict=verdict,
        dial=None if dial is None else _dial_panel(dial),
        charts=[charts.histogram(), *charts.main()],
        rows=_region_rows(lineup),
        drivers=drivers,
        row_tables=row_tables(
            scored, inputs, pictures=facts.pictures, reasons=None if drivers is None else drivers.reasons
        ),
        scored=scored,
        lineup=lineup,
        detail_charts=charts.details(),
        bins=scored.bins.explain(),
        weights=charts.weights(weights),
        smooths=window is not None and window["kernel"] is not None,
        details=[text for text in details if text],
        settings={k: v for k, v in facts.settings.items() if v is not None},
    )


def _opening(scored: Scored, facts: Facts) -> str:
    """Say what was trained on what, and on which rows it is measured."""
    table = f" of {facts.source}" if facts.trained_here else ""
    if facts.weight is not None:
        table += f", weighted by {facts.weight},"
    first = (
        f"{scored.title} was trained on {facts.train_rows:,} rows{table} to predict "
        f"{facts.target} from {_inputs_text(facts)}."
    )
    measured = f"All figures are measured on {scored.y.size:,}"
    if facts.trained_here:
        return f"{first} {measured} rows that no model has seen ({facts.test_source})."
    return f"{first} {measured} {facts.test_source}. They hold only if no model was trained on these rows."


def _inputs_text(facts: Facts) -> str:
    if facts.pictures:
        return "pictures"
    return f"{facts.features} column{'s' if facts.features != 1 else ''}"


def _dial_panel(dial: Dial) -> dict[str, Any]:
    """Return what the slider shows: text of every figure of every region at each emphasis."""
    figures = dial.by_region()
    shown = {
        region: {
            "mae": [number(value) for value in found["mae"]],
            "coverage": [f"{100 * value:.1f}%" for value in found["coverage"]],
            "width": [number(value) for value in found["width"]],
        }
        for region, found in figures.items()
    }
    used, settings = dial.scored.emphasis, [f"{setting:g}" for setting in dial.settings]
    return {
        "rows": {region: int(dial.scored.mask(region).sum()) for region in figures},
        "figures": shown,
        "settings": settings,
        "used": 0 if math.isnan(used) else dial.settings.index(used),
        "prior": math.isnan(used),
        "text": dial.text,
        "json": json.dumps({"settings": settings, "regions": shown}),
    }


def _region_rows(lineup: Lineup) -> list[dict[str, Any]]:
    """Return the rows of the table by region: figures of each model, and differences to the first."""
    ours = lineup.ours
    tables = [(scored, scored.by_region()) for scored in lineup.all]
    found = []
    for region in REGIONS:
        if not ours.mask(region).any():
            continue
        models = []
        for scored, table in tables:
            compared = None if scored is ours else contrast(ours, scored, region)
            models.append(
                {"title": scored.title, "figures": table.loc[region].to_dict(), "contrast": compared}
            )
        found.append({"region": region, "n": int(ours.mask(region).sum()), "models": models})
    return found


def _weights_text(weights: Weights | None) -> str:
    """Say by which formula rows are weighted and where the weights act."""
    if weights is None:
        return ""
    places = (("the loss of each row", weights.on_loss), ("the pseudo-counts of the head", weights.on_count))
    acts = " and ".join(place for place, on in places if on)
    if isinstance(weights, DenseWeights):
        slope = f"slope {weights.power:g}"
        return f"A row's weight falls linearly with the label density ({slope}) and acts on {acts}."
    if not isinstance(weights, DensityWeights):
        return f"Rows are weighted by the rarity of their labels. The weights act on {acts}."
    if weights.form != "paper":
        power = f"with power {weights.power:g}"
        return f"Rows are weighted by the form {weights.form!r} {power}. The weights act on {acts}."
    smoothed, window = "", weights.window
    if window["kernel"] is not None:
        smoothed = f", smoothed by a {window['kernel']} kernel over {2 * window['radius'] + 1} bins"
    return (
        f"A row's weight is the label density{smoothed}, to the power -{weights.power:g}. It acts on {acts}."
    )


def _smoothing_text(window: Window | None) -> str:
    """Say how features are smoothed over label bins."""
    if window is None or window["kernel"] is None:
        return ""
    return (
        f"Features are smoothed by a {window['kernel']} kernel over {2 * window['radius'] + 1} bins, with a "
        f"bandwidth of {number(window['bandwidth'])} bins."
    )
