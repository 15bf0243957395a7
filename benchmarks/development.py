"""Settings of TailRegressor, compared on natural splits of the development tables: the shared part."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from script_options import BESIDE, script_parser, show
from tailwise.benchmark import Source, get_suite
from tailwise.benchmark.data.natural_splits import NaturalSplit, natural_split
from tailwise.benchmark.pages.markup import Table
from tailwise.benchmark.pages.origin import describe_origin
from tailwise.benchmark.run.results import ResultsFile
from tailwise.benchmark.run.trace import ESTIMATOR, machine, trace_of
from tailwise.core.scores import crps
from tailwise.estimator import TailRegressor

DOCS = Path(__file__).parents[1] / "docs" / "results"
Line = dict[str, Any]
Figures = dict[str, float | None]
RATIOS = {
    "mae": "MAE",
    "rare_mae": "MAE rare",
    "crps": "CRPS",
    "rare_crps": "CRPS rare",
    "width": "width",
    "seconds": "time",
}
"""Figures that are divided by those of the first setting, and their titles."""
MEANS = {"all": "all covered", "rare": "rare covered", "few": "few-shot covered", "epochs": "epochs"}
MIN_FEW = 20
"""With fewer few-shot test rows their coverage does not count."""


def fitted(
    split: NaturalSplit,
    parameters: Mapping[str, Any],
    bases: tuple[np.ndarray, np.ndarray] | None = None,
) -> Figures:
    """Fit TailRegressor on a split and score it; `bases` are predictions of a base for both parts."""
    y, rare = split.y_test, split.rare
    own, new = (None, None) if bases is None else bases
    model = TailRegressor(random_state=split.seed, device="cpu", **parameters)
    began = time.process_time()
    model.fit(split.x_train, split.y_train, base_prediction=own)
    seconds = time.process_time() - began
    (found,) = model.predictions(split.x_test, base_prediction=new)
    lower, upper = (end.numpy() for end in found.interval(0.9))
    error, covered = np.abs(found.distribution.point.numpy() - y), (lower <= y) & (y <= upper)
    bins = found.calibrator.bins
    few = bins.regions(100, 20)[bins.index(y)] == "few"
    rows = torch.from_numpy(np.flatnonzero(rare))
    return {
        "mae": float(error.mean()),
        "rare_mae": float(error[rare].mean()),
        "crps": crps(found.distribution, torch.from_numpy(y)),
        "rare_crps": crps(found.distribution[rows], torch.from_numpy(y[rare])),
        "width": float((upper - lower).mean()),
        "seconds": seconds,
        "all": float(covered.mean()),
        "rare": float(covered[rare].mean()),
        "few": float(covered[few].mean()) if few.sum() >= MIN_FEW else None,
        "epochs": float(np.mean([len(history.history) for history in model.histories_])),
    }


@dataclass(frozen=True)
class Study:
    """What is compared: settings by name, the first as the reference, and the rule that chooses one."""

    about: str
    """The script's docstring: title, command, and what the page says."""
    results: Path
    settings: Sequence[str]
    sizes: Sequence[int]
    measure: Callable[[NaturalSplit], dict[str, Figures]]
    """Returns the figures of every setting; a function of a module, because processes import it."""
    choose: Callable[[Study, Sequence[Line]], str]

    def ratio(self, lines: Sequence[Line], setting: str, figure: str) -> tuple[float, float]:
        """Return the geometric mean of the ratios to the reference: its mean and deviation over seeds."""
        by_seed: dict[int, list[float]] = {}
        for line in lines:
            own, reference = (line["figures"][name][figure] for name in (setting, self.settings[0]))
            by_seed.setdefault(line["seed"], []).append(np.log(own / reference))
        each = np.exp([np.mean(logs) for logs in by_seed.values()])
        return float(each.mean()), float(each.std(ddof=1)) if each.size > 1 else 0.0

    def table(self, lines: Sequence[Line], caption: str) -> Table:
        """Return one row per setting."""
        rows = []
        for name in self.settings:
            found = {figure: self.ratio(lines, name, figure) for figure in RATIOS}
            several = len({line["seed"] for line in lines}) > 1
            cells = [
                f"{mean:.3f} ± {spread:.3f}" if several else f"{mean:.3f}" for mean, spread in found.values()
            ]
            cells[-1] = f"{found['seconds'][0]:.1f}"
            for figure in MEANS:
                known = [v for line in lines if (v := line["figures"][name][figure]) is not None]
                cells.append(f"{np.mean(known):.0f}" if figure == "epochs" else f"{np.mean(known):.3f}")
            rows.append([name, *cells])
        return Table(caption, ["setting", *RATIOS.values(), *MEANS.values()], rows)

    def page(self, lines: Sequence[Line]) -> str:
        """Return the page of these results."""
        title, _, command, _, *about = self.about.strip().splitlines()
        tables, seeds = (len({line[key] for line in lines}) for key in ("data", "seed"))
        origin = f"{tables} tables, {seeds} seed{'s' * (seeds > 1)}. {' '.join(describe_origin(list(lines)))}"
        shown = [*about, "", origin, "", f"**The rule chooses {self.choose(self, lines)}.**", ""]
        over = ", mean ± standard deviation over seeds" if seeds > 1 else ""
        shown.append(self.table(lines, f"All sizes{over}").markdown())
        for size in self.sizes:
            own = [line for line in lines if line["rows"] == size]
            shown += [self.table(own, f"At most {size:,} training rows").markdown()] if own else []
        text = "\n".join(shown)
        return f"# {title.rstrip('.')}\n\nWritten by `{command.strip()}`; do not edit.\n\n{text}"

    def main(self) -> int:
        """Run what is missing, print the page and write it if asked to."""
        options = script_parser(
            self.about, seeds=2, tables=True, workers=1, results=self.results, write=BESIDE
        ).parse_args()
        every = [source.name for source in get_suite("development").sources]
        names = options.data.split(",") if options.data else every
        results = ResultsFile(options.results)
        done = {(line["data"], line["seed"], line["rows"]) for line in results.records}
        jobs = [(name, seed, rows) for rows in self.sizes for seed in range(options.seeds) for name in names]
        with ProcessPoolExecutor(options.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            running = [pool.submit(_run, self.measure, *job) for job in jobs if job not in done]
            for future in as_completed(running):
                line = future.result()
                results.append(line)
                print("finished", line["data"], line["seed"], line["rows"], file=sys.stderr, flush=True)
        show(self.page(results.records), options)
        return 0


def _run(measure: Callable[[NaturalSplit], dict[str, Figures]], name: str, seed: int, rows: int) -> Line:
    """Return the results line of one table, seed and size."""
    torch.set_num_threads(1)
    source = next(s for s in get_suite("development").sources if s.name == name)
    assert isinstance(source, Source)
    split = natural_split(source, seed, max_rows=rows)
    origin = {"method": ESTIMATOR, "title": ESTIMATOR, "trace": trace_of(ESTIMATOR), "machine": machine()}
    return {"data": name, "seed": seed, "rows": rows, **origin, "figures": measure(split)}
