"""The demonstration says in words what its figures show."""

import pandas as pd

from tailwise.core.labels import LabelBins
from tailwise.demo import METRICS, DemoResult, DemoRun, picture, verdict

REGIONS = pd.Index(["all", "many", "medium", "few"], name="region")


def run(method: str, mae: list[float], nll: list[float]) -> DemoRun:
    figures = pd.DataFrame(dict.fromkeys(METRICS, 0.9), index=REGIONS).assign(n=9, mae=mae, nll=nll)
    along = pd.DataFrame({"center": [1.0, 2.0], "n": 9, "mae": 1.0, "coverage": 0.9})
    return DemoRun(method, 0, figures, along, best_epoch=1, seconds=1.0)


def test_where_others_are_better_is_told_in_words() -> None:
    runs = (
        run("vanilla", [3.0, 1.0, 2.0, 7.0], [4.0, 4.0, 4.0, 4.0]),
        run("lds-fds-der", [3.0, 2.5, 3.5, 6.5], [2.5, 3.0, 3.5, 2.9]),
        run("vir", [2.0, 2.0, 3.0, 6.0], [3.0, 3.0, 3.0, 3.0]),
    )
    result = DemoResult(runs, LabelBins.from_labels([1.0, 2.0, 2.0]), {"train": 3})
    said = verdict(result)
    assert "VIR's mean absolute error is 1.00 lower than vanilla's (6.00 against 7.00)" in said
    assert "Vanilla has a lower error for many-shot labels, for medium-shot labels." in said
    worse = "LDS + FDS + DER has a lower negative log-likelihood over all rows, for few-shot labels."
    assert said.endswith(worse)
    assert len(picture(result).axes) == 4
