"""A model card: what a model is, what it was trained on, how good it is and what it promises, in Markdown.

Everything comes from the model file and, if there is one, from a test on rows that training did not see.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tailwise._version import __version__
from tailwise.metrics.regions import REGIONS, by_region
from tailwise.report.formatting import level, number
from tailwise.report.scoring import title_of
from tailwise.serving.columns import Columns

if TYPE_CHECKING:
    from tailwise.calibration.calibration import Calibration
    from tailwise.estimator import TailRegressor

__all__ = ["model_card"]

MAX_COLUMNS = 100
"""Most columns that the card lists."""
TITLES = {
    "regions": "this model",
    "baseline": "plain network, or a second model",
    "base": "boosted trees",
    "weighted": "boosted trees with label weights",
    "constant": "a constant",
}
"""Models of a test, as `tailwise evaluate --json` names them."""


def model_card(
    model: TailRegressor,
    *,
    name: str,
    coverage: float = 0.9,
    test: Mapping[str, Any] | None = None,
    page: str | None = None,
) -> str:
    """Return the card of a fitted model.

    `test` is what ``tailwise evaluate --json`` or ``tailwise fit --json`` printed. `page` is the address of a
    report to link to.
    """
    sections = [
        [f"# Model card: {name}", "", _summary(model)],
        ["## Training", "", *_training(model)],
        ["## Labels", "", *_labels(model)],
        ["## Columns", "", *_columns(model)],
        ["## Errors on held-out rows", "", *_held_out(model)],
        ["## Test", "", *_test(test, page)],
        ["## Intervals", "", model.explain_intervals(coverage)],
        ["## Limits", "", *_limits(model)],
        ["## Use", "", *_use(model, name)],
    ]
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    # A name of a column may have a line end, which would end the row of the table.
    cells = [[" ".join(str(cell).splitlines()).replace("|", "\\|") for cell in line] for line in lines]
    return ["| " + " | ".join(line) + " |" for line in cells]


def _names(model: TailRegressor) -> list[str]:
    return [str(name) for name in model.target_names_ or range(model.n_targets_)]


def _several(model: TailRegressor, t: int) -> list[str]:
    """Return the heading of a target, if there are several."""
    return [f"### {_names(model)[t]}", ""] if model.n_targets_ > 1 else []


def _summary(model: TailRegressor) -> str:
    several = model.n_targets_ > 1
    unnamed = f"{model.n_targets_} targets without names" if several else "a target without a name"
    targets = ", ".join(_names(model)) if model.target_names_ else unnamed
    rows = int(model.model_.bins[0].counts.sum())
    count = getattr(model, "n_features_in_", None)
    inputs = "inputs of your own" if count is None else f"{count} column{'s' if count != 1 else ''}"
    return (
        f"Regression with rare labels: predicts {targets} from {inputs}, with intervals. Trained on {rows:,} "
        f"rows with {title_of(model)}. Written by tailwise {__version__}."
    )


def _training(model: TailRegressor) -> list[str]:
    kinds = sorted({type(base).__name__ for one in model.base_ for base in one.models}) if model.base_ else []
    facts: dict[str, Any] = {
        "method": model.method,
        "networks": len(model.model_.networks),
        "base": ", ".join(kinds) or ("predictions of your own" if model.model_.base.given else "none"),
        "epochs": max(len(history.history) for history in model.histories_),
        "emphasis": model.emphasis_,
        "seed": model.random_state,
        "recalibrated on rows": model.model_.record.recalibrated or "no",
    }
    changed = model.method_options or {}
    facts |= {f"option {key}": value for key, value in changed.items()}
    return _table(["setting", "value"], list(facts.items()))


def _labels(model: TailRegressor) -> list[str]:
    lines = []
    for t, bins in enumerate(model.model_.bins):
        regions = bins.regions(model.many, model.few)
        rows = [
            (r, int((regions == r).sum()), f"{int(bins.counts[regions == r].sum()):,}")
            for r in ("many", "medium", "few")
        ]
        lines += [
            *_several(model, t),
            bins.explain(),
            "",
            *_table(["region", "label bins", "training rows"], rows),
            "",
        ]
    return lines[:-1]


def _columns(model: TailRegressor) -> list[str]:
    try:
        columns = Columns.of(model)
    except ValueError:
        return ["The model takes no table, or needs predictions of a base model of your own."]
    rows = [
        (
            column.name,
            column.kind,
            "yes" if column.nullable else "no",
            f"{len(column.categories)} categories" if column.categories else "",
        )
        for column in columns.all[:MAX_COLUMNS]
    ]
    more = len(columns.all) - len(rows)
    table = _table(["column", "type", "may be missing", ""], rows)
    return [*table, *(["", f"And {more} more."] if more else [])]


def _held_out(model: TailRegressor) -> list[str]:
    if not model.model_.record.held_out:
        return ["The table was too small to hold out rows."]
    lines = [
        "Each of these rows was held out from the networks that predict it here. The rows also stopped the "
        "training, scaled the uncertainty and chose the emphasis, so figures on new rows may be a little "
        "worse. The regions say how many training rows had such labels.",
        "",
    ]
    for t, calibration in enumerate(model.model_.targets):
        lines += [*_several(model, t), *_errors(calibration), ""]
    return lines[:-1]


def _errors(calibration: Calibration) -> list[str]:
    held, labels = calibration.held, calibration.labels
    predicted, shots = calibration.possible(held.prediction), {"many": labels.many, "few": labels.few}
    figures = by_region(predicted, held.labels, labels.bins, ("mae", "rmse"), **shots)
    rows = [
        (region, int(row["n"]), number(row["mae"]), number(row["rmse"]))
        for region, row in figures.iterrows()
        if row["n"] > 0
    ]
    return _table(["region", "rows", "MAE", "RMSE"], rows)


def _test(test: Mapping[str, Any] | None, page: str | None) -> list[str]:
    link = [] if page is None else ["", f"All charts are in [the report]({page})."]
    if test is None:
        return ["No test on rows that training did not see was given.", *link]
    lines = []
    for finding in test.get("targets") or [test]:
        verdict = finding.get("verdict")
        if not isinstance(verdict, Mapping) or not isinstance(finding.get("regions"), Mapping):
            raise ValueError("the report has no figures: give what `tailwise evaluate --json` printed")
        lines += [f"### {finding['target']}", "", *_verdict(verdict), ""]
        rows = [
            (title, region, int(row["n"]), *(_figure(row, f) for f in ("mae", "rmse", "coverage", "width")))
            for key, title in TITLES.items()
            for region in REGIONS
            if (row := (finding.get(key) or {}).get(region)) and row["n"]
        ]
        lines += [*_table(["model", "region", "rows", "MAE", "RMSE", "coverage", "width"], rows), ""]
    return [*lines[:-1], *link]


def _verdict(verdict: Mapping[str, Any]) -> list[str]:
    return [
        " ".join(
            str(part) for part in (verdict["headline"], *verdict["sentences"], verdict["advice"]) if part
        )
    ]


def _figure(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.1%}" if name == "coverage" else number(value)


def _limits(model: TailRegressor) -> list[str]:
    bounds = [target.labels.bounds for target in model.model_.targets]
    stated = [f"{number(b.low)} to {number(b.high)}" for b in bounds if not b.is_identity]
    within = f"Predictions and intervals stay within {', '.join(stated)}." if stated else ""
    lines = [
        "- Intervals are meant for rows like the training rows. After a change of the data, check them with "
        "`tailwise evaluate` and fit them anew with `tailwise recalibrate`.",
        "- No method can promise coverage for each label separately.",
        "- A category that training did not have is encoded as no known value.",
        "- The labels and columns are as they were given: the model inherits their errors and biases.",
    ]
    return [*lines, *([f"- {within}"] if within else [])]


def _use(model: TailRegressor, name: str) -> list[str]:
    return [
        "```",
        f"tailwise predict {name} new.csv --out predicted.csv",
        f"tailwise serve {name}",
        "```",
        "",
        f"Unless told otherwise, intervals cover {level(0.9)} and the emphasis is {model.emphasis_}.",
    ]
