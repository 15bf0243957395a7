"""A model card: what a model is, what it was trained on, how good it is and what it promises, in Markdown.

Everything comes from the model file and, if there is one, from a test on rows that training did not see.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader

from tailwise._version import __version__
from tailwise.metrics.regions import REGIONS, by_region
from tailwise.report.scores import title_of
from tailwise.report.wording import number
from tailwise.serving.columns import Columns

if TYPE_CHECKING:
    from tailwise.estimator import TailRegressor

__all__ = ["model_card"]

FIGURES = ("mae", "rmse", "crps", "coverage", "width", "interval_score")
"""Figures of a test that the card shows."""
TITLES = {
    "regions": "this model",
    "baseline": "a second model",
    "base": "boosted trees",
    "constant": "a constant",
}
"""Models of a test, as `tailwise evaluate --json` names them."""


def model_card(model: TailRegressor, *, name: str, test: Mapping[str, Any] | None = None) -> str:
    """Return the card of a fitted model; `test` is what ``tailwise evaluate --json`` printed."""
    fitted, count = model.model_, getattr(model, "n_features_in_", None)
    unnamed = f"{model.n_targets_} targets without names" if fitted.several else "a target without a name"
    try:
        columns = Columns.of(model).all
    except ValueError:  # no table, or a base of your own
        columns = ()
    bounds = [target.labels.bounds for target in fitted.targets]
    templates = Environment(loader=PackageLoader("tailwise.serving"), trim_blocks=True, lstrip_blocks=True)
    templates.filters["cell"] = _cell
    text = templates.get_template("card.md").render(
        name=name,
        version=__version__,
        predicts=", ".join(map(str, model.target_names_ or [unnamed])),
        inputs="inputs of your own" if count is None else f"{count} column{'s' if count != 1 else ''}",
        rows=int(fitted.bins[0].counts.sum()),
        title=title_of(model),
        training=_training(model),
        targets=[_target(model, t) for t in range(model.n_targets_)],
        columns=columns,
        held_out=fitted.record.held_out,
        findings=[_finding(finding) for finding in (test or {}).get("targets") or ([test] if test else [])],
        intervals=model.explain_intervals(),
        bounds=[f"{number(b.low)} to {number(b.high)}" for b in bounds if not b.is_identity],
    )
    return f"{text.rstrip()}\n"


def _cell(value: object) -> str:
    """Return a value as a cell of a table, which a line end or a bar in a name would end."""
    return " ".join(str(value).splitlines()).replace("|", "\\|")


def _training(model: TailRegressor) -> dict[str, Any]:
    fitted = model.model_
    kinds = sorted({type(base).__name__ for target in fitted.base.targets for base in target.models})
    options = {f"option {key}": value for key, value in (model.method_options or {}).items()}
    return {
        "method": model.method,
        "networks": len(fitted.networks),
        "base": ", ".join(kinds) or ("predictions of your own" if fitted.base.given else "none"),
        "epochs": max(len(history.history) for history in model.histories_),
        "emphasis": model.emphasis_,
        "target transform": ", ".join(dict.fromkeys(t.labels.transform.name for t in fitted.targets)),
        "seed": model.random_state,
        "recalibrated on rows": fitted.record.recalibrated or "no",
        **options,
    }


def _target(model: TailRegressor, t: int) -> dict[str, Any]:
    """Return the labels of a target by region, and the errors of held-out rows."""
    calibration = model.model_.targets[t]
    held, labels, bins = calibration.held, calibration.labels, calibration.bins
    regions = bins.regions(model.many, model.few)
    shots = {"many": labels.many, "few": labels.few}
    figures = by_region(calibration.possible(held.prediction), held.labels, bins, ("mae", "rmse"), **shots)
    return {
        "name": model.model_.target_name(t),
        "labels": bins.explain(),
        "regions": [
            (region, int((regions == region).sum()), f"{int(bins.counts[regions == region].sum()):,}")
            for region in ("many", "medium", "few")
        ],
        "errors": [
            (region, int(row["n"]), number(row["mae"]), number(row["rmse"]))
            for region, row in figures.iterrows()
            if row["n"] > 0
        ],
    }


def _finding(finding: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdict and the figures of a test of one target."""
    verdict = finding["verdict"]
    sentences = (verdict["headline"], *verdict["sentences"], verdict["advice"])
    rows = [
        (title, region, int(row["n"]), *(_figure(row, f) for f in FIGURES))
        for key, title in TITLES.items()
        for region in REGIONS
        if (row := (finding.get(key) or {}).get(region)) and row["n"]
    ]
    return {"target": finding["target"], "verdict": " ".join(filter(None, sentences)), "rows": rows}


def _figure(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.1%}" if name == "coverage" else number(value)
