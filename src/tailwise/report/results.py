"""Results files: one JSON line per run of a method on a table, and figures over the seeds of such runs."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tailwise.distributions.members import Distribution
from tailwise.labels.bins import LabelBins
from tailwise.metrics.regions import REGIONS, by_bin, evaluate, get_metric
from tailwise.metrics.scores import winkler
from tailwise.writing import append_line

Array = NDArray[Any]
Record = dict[str, Any]
Run = tuple[str, str, int]
"""What a line is found by: data, method and seed."""
Shots = tuple[int, int]
"""Many-shot bins have more training rows than the first, few-shot bins fewer than the second."""
TAIL, TAIL_BALANCED = "tail", "tail-balanced"
"""TailRegressor in results lines: at the emphasis that it chose, and at emphasis 1."""
OF_THE_MEAN = ("mae", "mse", "rmse", "gm", "pearson", "spearman", "balanced_mae")
"""Metrics that calibration does not change; calibrated results do not repeat them."""
OF_THE_SPREAD = (
    *("nll", "balanced_nll", "gaussian_nll", "gaussian_nll_reference", "ause", "ause_reference"),
    *("crps", "coverage", "width", "interval_score", "ence"),
)
RATIOS = ("mae", "mse", "rmse", "gm", "balanced_mae", "crps", "width", "interval_score")
"""Metrics in label units, which are compared between data sets as ratios."""
_ABBREVIATIONS = ("mae", "rmse", "nll", "ause", "crps", "ence", "gm")
_LINE = ("data", "method", "seed", "recipe", "digest", "metrics")
"""Keys that the line of a finished run has."""


# -- what a line says ----------------------------------------------------------------------------


def scores_by_region(
    prediction: Distribution, y: Array, bins: LabelBins, shots: Shots, metrics: Sequence[str]
) -> dict[str, Any]:
    """Return rounded metrics by region; None where a region has too few rows."""
    names = [f"{region}/{metric}" for region in REGIONS for metric in metrics]
    values = evaluate(prediction, y, bins, names, many=shots[0], few=shots[1])
    table: dict[str, Any] = {region: {} for region in REGIONS}
    for name, value in values.items():
        region, metric = name.split("/")
        table[region][metric] = float(f"{value:.6g}") if math.isfinite(value) else None
    return table


def score_limits(lower: Array, upper: Array, y: Array, bins: LabelBins, shots: Shots) -> dict[str, Any]:
    """Return coverage, width and interval score of 90% intervals by region, rounded."""
    region = bins.regions(*shots)[bins.index(y)]
    low, high, labels = (torch.from_numpy(np.asarray(values, np.float64)) for values in (lower, upper, y))
    score = winkler(low, high, labels)
    values = {
        "coverage": (lower <= y) & (y <= upper),
        "width": upper - lower,
        "interval_score": score.numpy(),
    }
    table: dict[str, Any] = {}
    for name in REGIONS:
        rows = np.ones(len(region), bool) if name == "all" else region == name
        table[name] = {
            metric: float(f"{value[rows].mean():.6g}") if rows.any() else None
            for metric, value in values.items()
        }
    return table


def errors_along_label(prediction: Distribution, y: Array, bins: LabelBins) -> dict[str, list[float]]:
    """Return center, number of rows and mean absolute error of each label bin, rounded."""
    table = by_bin(prediction, y, bins, ("mae",))
    return {name: [float(f"{value:.5g}") for value in table[name]] for name in ("center", "n", "mae")}


def region_rows(y: Array, bins: LabelBins, shots: Shots) -> dict[str, int]:
    """Return the number of rows of each region."""
    regions = bins.regions(*shots)[bins.index(y)]
    return {region: int((regions == region).sum()) for region in REGIONS[1:]}


def machine() -> str:
    """Describe the processor and the version of torch, which times depend on."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f"{model or platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"


# -- files ---------------------------------------------------------------------------------------


def append_record(path: Path, record: Record) -> None:
    """Append a line and wait until it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    append_line(path, json.dumps(record, allow_nan=False).encode())


def read_records(path: Path) -> list[Record]:
    """Return the lines of a file, none if it does not exist.

    An unfinished last line, as a kill leaves it, is dropped; a broken line elsewhere is an error.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder: name the results file in it")
    content = path.read_bytes() if path.is_file() else b""
    records = []
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            records.append(json.loads(line))
        except ValueError:
            raise ValueError(
                f"{path}, line {number} is not JSON: delete that line, or name another file"
            ) from None
    return records


def finished_runs(records: Iterable[Record]) -> dict[Run, Record]:
    """Return the last line without an error of each (data, method, seed)."""
    return {(r["data"], r["method"], r["seed"]): r for r in records if "error" not in r}


def read_results(*paths: Path) -> list[Record]:
    """Return all finished runs of some files; of a run that occurs twice, the last line counts."""
    records = []
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist")
        for number, record in enumerate(read_records(path), start=1):
            lacking = [key for key in _LINE if not isinstance(record, dict) or key not in record]
            if lacking and not (isinstance(record, dict) and "error" in record):
                raise ValueError(
                    f"{path} is not a results file of `tailwise compare`: a line lacks {lacking[0]!r} "
                    f"(line {number})"
                )
            records.append(record)
    return list(finished_runs(records).values())


# -- figures over seeds --------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    """A metric in a region, of raw or calibrated predictions."""

    metric: str
    region: str = "all"
    calibrated: bool = False

    @property
    def name(self) -> str:
        """Name for the head of a table."""
        text = self.metric.replace("_", " ").replace("mae", "MAE")
        text = text.upper() if self.metric in _ABBREVIATIONS else text
        return f"{text} {self.region}"

    def of(self, record: Record) -> float:
        """Return its value in a results line; NaN where the region has too few rows, or the line lacks it."""
        kind = "calibrated" if self.calibrated and self.metric not in OF_THE_MEAN else "raw"
        value = record["metrics"][kind][self.region].get(self.metric)
        return math.nan if value is None else float(value)

    def loss(self, value: float) -> float:
        """Convert a value so that less is better."""
        return math.nan if math.isnan(value) else get_metric(self.metric).loss(value)

    def change(self, other: float, reference: float) -> float:
        """Return how much worse another value is than the reference, on a scale that data sets share.

        It is the logarithm of the ratio for metrics in label units, and else the difference of losses.
        """
        if self.metric in RATIOS:
            return math.log(max(other, 1e-300) / max(reference, 1e-300))
        return self.loss(other) - self.loss(reference)


class Results:
    """Finished runs by method and data set, all on the same rows."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = [record for record in records if "error" not in record]
        if not self.records:
            raise ValueError("there is no finished run to compare")
        first: dict[tuple[str, int], Record] = {}
        for record in self.records:
            data, seed = record["data"], record["seed"]
            other = first.setdefault((data, seed), record)
            if other["digest"] != record["digest"]:
                raise ValueError(
                    f"{other['method']} and {record['method']} had different data in {data}, seed {seed}: "
                    "run both on the same rows"
                )

    @cached_property
    def _runs(self) -> dict[tuple[str, str], dict[int, Record]]:
        runs: dict[tuple[str, str], dict[int, Record]] = {}
        for record in self.records:
            runs.setdefault((record["data"], record["method"]), {})[record["seed"]] = record
        return runs

    @cached_property
    def methods(self) -> list[str]:
        """Names of the methods in order of their first runs."""
        return list(dict.fromkeys(record["method"] for record in self.records))

    @cached_property
    def data(self) -> list[str]:
        """Names of the data sets."""
        return sorted({record["data"] for record in self.records})

    @cached_property
    def titles(self) -> dict[str, str]:
        """Titles of the methods in tables."""
        return {record["method"]: record["title"] for record in self.records}

    def runs(self, data: str, method: str) -> Mapping[int, Record]:
        """Return the runs of a method on a data set, by seed."""
        return self._runs.get((data, method), {})

    def values(self, figure: Figure, data: str, method: str) -> Array:
        """Return the figure of every seed. (S,)"""
        return np.array([figure.of(record) for record in self.runs(data, method).values()])

    def mean_std(self, figure: Figure, data: str, method: str) -> tuple[float, float]:
        """Return mean and standard deviation over seeds; NaN where there are too few runs for them."""
        values = self.values(figure, data, method)
        values = values[~np.isnan(values)]
        if values.size == 0:
            return math.nan, math.nan
        return float(values.mean()), float(values.std(ddof=1)) if values.size > 1 else math.nan
