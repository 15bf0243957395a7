"""The demonstration behind `make demo`: VIR against two baselines on the bundled abalone table."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import pandas as pd
import torch

from tailwise.benchmark.run.workers import Workers
from tailwise.core.labels import LabelBins
from tailwise.core.metrics import by_bin, by_region
from tailwise.data import balanced_split, load_abalone
from tailwise.learning.loop import TrainConfig, fit, predict
from tailwise.methods import build_model, get_method
from tailwise.networks.backbones import MLP
from tailwise.uncertainty.scaling import balanced_weights, fit_scaling

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("vanilla", "lds-fds-der", "vir")
METRICS = ("mae", "gm", "nll", "ause", "coverage")
TARGET = "Rings"
OUTPUTS = ("report.html", "demo.png", "results.csv")
"""Files that `write_outputs` writes."""
RECIPE = TrainConfig(epochs=80, patience=15, accelerator="cpu")


@dataclass(frozen=True)
class DemoRun:
    """One method trained with one seed: test figures by region and by label, and what it took."""

    method: str
    seed: int
    regions: pd.DataFrame
    labels: pd.DataFrame
    best_epoch: int
    seconds: float


@dataclass(frozen=True)
class DemoResult:
    """All runs, the label bins of the first seed's training part, and how the data was split."""

    runs: tuple[DemoRun, ...]
    bins: LabelBins
    sizes: dict[str, int]

    def _stacked(self, method: str, part: str) -> pd.DataFrame:
        return cast("pd.DataFrame", pd.concat([vars(run)[part] for run in self.runs if run.method == method]))

    def methods(self) -> list[str]:
        """Names of the methods, in the order they were asked for."""
        return list(dict.fromkeys(run.method for run in self.runs))

    def mean(self, method: str) -> pd.DataFrame:
        """Figures by region, averaged over seeds."""
        return self._stacked(method, "regions").groupby(level=0, sort=False).mean()

    def spread(self, method: str) -> pd.DataFrame:
        """Standard deviation of the figures over seeds; 0 for a single seed."""
        return self._stacked(method, "regions").groupby(level=0, sort=False).std().fillna(0.0)

    def spreads(self, metric: str) -> dict[str, pd.Series[float]] | None:
        """Spread of a metric in the three regions, by title of the method; None for a single seed."""
        if len({run.seed for run in self.runs}) == 1:
            return None
        regions = ["many", "medium", "few"]
        return {get_method(name).title: self.spread(name).loc[regions, metric] for name in self.methods()}

    def curve(self, method: str) -> pd.DataFrame:
        """Figures along the label range, averaged over seeds."""
        return self._stacked(method, "labels").groupby("center", as_index=False).mean()


def prepared(seed: int) -> tuple[torch.Tensor, np.ndarray, LabelBins, dict[str, np.ndarray]]:
    """Return inputs (N, 10) standardised on the training part, labels, its bins and the split's rows."""
    table = load_abalone()
    labels = table.pop(TARGET).to_numpy(np.float64)
    inputs = pd.get_dummies(table).to_numpy(np.float64)
    split = balanced_split(labels, per_bin=15, seed=seed)
    center, spread = inputs[split.train].mean(0), inputs[split.train].std(0)
    x = torch.as_tensor((inputs - center) / spread, dtype=torch.float32)
    return x, labels, LabelBins.from_labels(labels[split.train]), vars(split)


def run_one(method: str, seed: int, recipe: TrainConfig = RECIPE) -> DemoRun:
    """Train, calibrate on the validation part, and score the test part once."""
    began = time.perf_counter()
    x, labels, bins, rows = prepared(seed)
    y = torch.as_tensor(labels)
    torch.manual_seed(seed)
    backbone = MLP(x.shape[1])
    model = build_model(method, backbone, backbone.feature_dim, bins)
    train, valid, test = rows["train"], rows["valid"], rows["test"]
    result = fit(
        model, (x[train], y[train]), (x[valid], y[valid]), replace(recipe, seed=seed), progress=False
    )
    weights = balanced_weights(labels[valid], bins)
    scaling = fit_scaling(predict(model, x[valid]), y[valid], weights=weights)
    prediction = scaling.apply(predict(model, x[test]))
    return DemoRun(
        method=method,
        seed=seed,
        regions=by_region(prediction, y[test], bins, METRICS),
        labels=by_bin(prediction, y[test], bins, ("mae", "coverage")),
        best_epoch=result.best_epoch,
        seconds=time.perf_counter() - began,
    )


def _work(job: tuple[str, int, TrainConfig]) -> DemoRun:
    return run_one(*job)


def run_demo(
    methods: Sequence[str] = METHODS,
    seeds: Sequence[int] = (0, 1, 2),
    recipe: TrainConfig = RECIPE,
    workers: int = 2,
) -> DemoResult:
    """Train every method with every seed, in `workers` processes at once."""
    jobs = [(method, seed, recipe) for method in methods for seed in seeds]
    waiting = deque(jobs)
    done: dict[tuple[str, int, TrainConfig], DemoRun] = {}
    with Workers(_work, workers) as crew:
        while waiting or crew.flying:
            while waiting and crew.free:
                crew.submit(waiting.popleft())
            done.update(crew.finished())
    runs = tuple(done[job] for job in jobs)
    _, _, bins, rows = prepared(seeds[0])
    return DemoResult(runs, bins, {name: len(index) for name, index in rows.items()})


def _figure(table: pd.DataFrame, region: str, metric: str) -> float:
    return float(cast("float", table.loc[region, metric]))


def verdict(result: DemoResult) -> str:
    """Say in words what the figures show for VIR, the losses as well as the gains."""
    ours, base = result.mean("vir"), result.mean("vanilla")
    sentences = []
    for region in ("few", "many"):
        change = _figure(ours, region, "mae") - _figure(base, region, "mae")
        word = "lower" if change < 0 else "higher"
        sentences.append(
            f"In the {region}-shot region VIR's mean absolute error is {abs(change):.2f} {word} than "
            f"vanilla's ({_figure(ours, region, 'mae'):.2f} against {_figure(base, region, 'mae'):.2f})"
        )
    covered = _figure(ours, "few", "coverage")
    judged = "as they should" if abs(covered - 0.9) <= 0.05 else ("too few" if covered < 0.9 else "too many")
    sentences.append(f"{covered:.0%} of its 90% intervals hold in the few-shot region, {judged}")
    for other in result.methods():
        if other == "vir":
            continue
        better = []
        for metric, what in (("mae", "error"), ("nll", "negative log-likelihood")):
            where = [
                "over all rows" if region == "all" else f"for {region}-shot labels"
                for region in ("all", "many", "medium", "few")
                if _figure(result.mean(other), region, metric) < _figure(ours, region, metric)
            ]
            if where:
                better.append(f"a lower {what} {', '.join(where)}")
        if better:
            sentences.append(f"{get_method(other).title} has {' and '.join(better)}")
    return ". ".join(sentences) + "."


def picture(result: DemoResult) -> Figure:
    """Draw the labels, the error along them, and accuracy and coverage by region."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    from tailwise.report import plots

    figure = Figure(figsize=(11, 6.4), layout=ConstrainedLayoutEngine(hspace=0.06))
    axes = figure.subplots(2, 2)
    titles = {name: get_method(name).title for name in result.methods()}
    means = {titles[name]: result.mean(name) for name in titles}
    plots.label_histogram(result.bins, axes[0, 0], label="rings (age of an abalone)")
    axes[0, 0].set_title("Old and very young abalones are rare")
    curves = {titles[name]: result.curve(name) for name in titles}
    plots.by_label(curves, "mae", axes[0, 1], label="rings")
    axes[0, 1].set(title="Error along the label range", ylabel="mean absolute error")
    plots.by_region_bars(means, "mae", axes[1, 0], spread=result.spreads("mae"))
    axes[1, 0].set(title="Error by region", ylabel="mean absolute error")
    plots.by_region_bars(means, "coverage", axes[1, 1], spread=result.spreads("coverage"), target=0.9)
    axes[1, 1].set(title="How many 90% intervals hold", ylabel="coverage")
    return figure


def write_outputs(result: DemoResult, folder: Path) -> list[Path]:
    """Write the picture, the figures as CSV and the HTML page; return where they are."""
    from tailwise.data.writing import write_together
    from tailwise.report.demonstration import demo_page

    page, image, table = (folder / name for name in OUTPUTS)
    drawn = picture(result)
    long = pd.concat(
        run.regions.reset_index().assign(method=run.method, seed=run.seed, best_epoch=run.best_epoch)
        for run in result.runs
    )
    text = demo_page(result, drawn, verdict(result))
    write_together(
        {
            page: lambda part: part.write_text(text, encoding="utf-8"),
            image: lambda part: drawn.savefig(part, dpi=110, format="png"),
            table: lambda part: long.to_csv(part, index=False),
        }
    )
    return [page, image, table]
