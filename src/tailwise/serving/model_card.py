"""A model card: what a model is, what it was trained on, how good it is and what it promises, in Markdown.

Everything comes from the model file and, if there is one, from a test on rows that training did not see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader

from tailwise._version import __version__
from tailwise.metrics.regions import REGIONS, by_region
from tailwise.report.scores import FIGURES, title_of
from tailwise.report.wording import number
from tailwise.serving.columns import Columns

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.calibration.calibration import Calibration
    from tailwise.estimator import TailRegressor

__all__ = ["model_card"]

CARD = ("mae", "rmse", "crps", "coverage", "width", "interval_score")
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
    tests = (test or {}).get("targets") or ([test] if test else [])
    try:
        columns = Columns.of(model).all
    except ValueError:  # no table, or a base of your own
        columns = ()
    templates = Environment(loader=PackageLoader("tailwise.serving"), trim_blocks=True, lstrip_blocks=True)
    templates.filters |= {"cell": _cell, "number": number, "figure": _figure}
    text = templates.get_template("card.md").render(
        name=name,
        version=__version__,
        model=model,
        fitted=model.model_,
        title=title_of(model),
        training=_training(model),
        errors=[_errors(target) for target in model.model_.targets],
        columns=columns,
        tests=[(found["target"], found["verdict"], found) for found in tests],
        titles=TITLES,
        regions=REGIONS,
        figures={figure: FIGURES[figure].title for figure in CARD},
    )
    return f"{text.rstrip()}\n"


def _cell(value: object) -> str:
    """Return a value as a cell of a table, which a line end or a bar in a name would end."""
    return " ".join(str(value).splitlines()).replace("|", "\\|")


def _figure(value: float | None, name: str) -> str:
    """Return a figure of a test, which JSON has as null if it is not finite."""
    return "–" if value is None else FIGURES[name].text(value)


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


def _errors(calibration: Calibration) -> pd.DataFrame:
    """Return the errors of held-out rows by region."""
    held, labels = calibration.held, calibration.labels
    possible = calibration.possible(held.prediction)
    return by_region(possible, held.labels, labels.bins, ("mae", "rmse"), **labels.shots)
