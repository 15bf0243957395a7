"""How long the networks of TailRegressor train: batches, rate and patience, on the development tables.

    python benchmarks/stopping.py --seeds 2 --write

On one table two of five networks had stopped after 14 and 21 epochs with a much higher NLL than the others:
an epoch has three steps, and ten epochs without improvement are often chance. The intervals were a third
wider for it. Here `TailRegressor` is fitted with other settings to the same rows and the same base
predictions, with at most 4,000 and with at most 1,000 training rows. Its other settings are the defaults.

`rare` has the 15% of the test labels that are rarest in training, `few-shot` the labels in bins with fewer
than 20 training rows. `steps` are the steps of an epoch. Time is the processor time of the networks. Figures
are divided by those of the former setting (3 steps, rate 0.003, patience 10), but for coverages.

The rule, written before the runs: of the settings whose MAE is at most 0.5% above the former one's and whose
time is at most three times as long, those count whose CRPS of rare labels is within 0.5% of the lowest. The
one with the narrowest 90% intervals over all rows wins. Figures are geometric means over tables and sizes,
averaged over seeds.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
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
from tailwise.data.tables.preprocessing import TablePreprocessor
from tailwise.estimator import TailRegressor
from tailwise.estimator.bases import AUTO, BASES, cross_fit, deal_folds

DOCS = Path(__file__).parents[1] / "docs" / "results"
SIZES = (4000, 1000)
RATIOS = ("mae", "rare_mae", "crps", "rare_crps", "width", "seconds")
COVERAGES = ("all", "rare", "few")
MOST_MAE, MOST_TIME, SAME_CRPS = 1.005, 3.0, 1.005


@dataclass(frozen=True)
class Setting:
    """How the networks train."""

    steps: int
    lr: float
    patience: int

    @property
    def name(self) -> str:
        return f"{self.steps} steps, rate {self.lr:g}, patience {self.patience}"

    def parameters(self, rows: int) -> dict[str, Any]:
        """Return parameters of TailRegressor, which holds out a fifth of the training rows."""
        batch = int(np.clip(2 ** np.round(np.log2(0.8 * rows / self.steps)), 32, 2048))
        return {"batch_size": batch, "lr": self.lr, "patience": self.patience}


FORMER = Setting(3, 3e-3, 10)
SETTINGS = (
    FORMER,
    Setting(3, 3e-3, 20),
    Setting(3, 3e-3, 30),
    Setting(3, 3e-3, 50),
    Setting(3, 1e-3, 10),
    Setting(3, 1e-3, 30),
    Setting(6, 3e-3, 15),
    Setting(6, 3e-3, 30),
    Setting(6, 1e-3, 15),
    Setting(6, 1e-3, 30),
    Setting(12, 3e-3, 15),
    Setting(12, 1e-3, 10),
    Setting(12, 1e-3, 20),
)


def measure(split: NaturalSplit) -> dict[str, dict[str, float | None]]:
    """Return the figures of every setting on one split."""
    torch.set_num_threads(1)
    y, rare = split.y_test, split.rare
    matrices = TablePreprocessor().fit(split.x_train)
    train, test = (matrices.matrix(x) for x in (split.x_train, split.x_test))
    fold, even = deal_folds(split.y_train, split.seed), np.ones(len(split.y_train))
    base, out_of_fold = cross_fit(BASES[AUTO], train, split.y_train, even, fold, split.seed)
    offset = base.predict(test)
    rows = torch.from_numpy(np.flatnonzero(rare))
    figures: dict[str, dict[str, float | None]] = {}
    for setting in SETTINGS:
        model = TailRegressor(random_state=split.seed, device="cpu", **setting.parameters(len(split.y_train)))
        began = time.process_time()
        model.fit(split.x_train, split.y_train, base_prediction=out_of_fold)
        seconds = time.process_time() - began
        (found,) = model.predictions(split.x_test, base_prediction=offset)
        lower, upper = (end.numpy() for end in found.interval(0.9))
        error, covered = np.abs(found.distribution.point.numpy() - y), (lower <= y) & (y <= upper)
        bins = found.calibrator.bins
        few = bins.regions(100, 20)[bins.index(y)] == "few"
        figures[setting.name] = {
            "mae": float(error.mean()),
            "rare_mae": float(error[rare].mean()),
            "crps": crps(found.distribution, torch.from_numpy(y)),
            "rare_crps": crps(found.distribution[rows], torch.from_numpy(y[rare])),
            "width": float((upper - lower).mean()),
            "seconds": seconds,
            "all": float(covered.mean()),
            "rare": float(covered[rare].mean()),
            "few": float(covered[few].mean()) if few.sum() >= 20 else None,
            "epochs": float(np.mean([len(history.history) for history in model.histories_])),
        }
    return figures


def run(name: str, seed: int, rows: int) -> dict[str, Any]:
    """Return the results line of one table, seed and size."""
    source = next(s for s in get_suite("development").sources if s.name == name)
    assert isinstance(source, Source)
    split = natural_split(source, seed, max_rows=rows)
    origin = {"method": ESTIMATOR, "title": ESTIMATOR, "trace": trace_of(ESTIMATOR), "machine": machine()}
    return {"data": name, "seed": seed, "rows": rows, **origin, "figures": measure(split)}


def ratio(lines: list[dict[str, Any]], setting: Setting, figure: str) -> tuple[float, float]:
    """Return the mean and the deviation over seeds of the geometric mean of the ratio to the former one's."""
    by_seed: dict[int, list[float]] = {}
    for line in lines:
        own, former = (line["figures"][s.name][figure] for s in (setting, FORMER))
        by_seed.setdefault(line["seed"], []).append(np.log(own / former))
    each = np.exp([np.mean(logs) for logs in by_seed.values()])
    return float(each.mean()), float(each.std(ddof=1)) if each.size > 1 else 0.0


def chosen(lines: list[dict[str, Any]]) -> Setting:
    """Return the setting that the rule takes."""

    def mean(setting: Setting, figure: str) -> float:
        return ratio(lines, setting, figure)[0]

    able = [s for s in SETTINGS if mean(s, "mae") <= MOST_MAE and mean(s, "seconds") <= MOST_TIME]
    least = min(mean(s, "rare_crps") for s in able)
    close = [s for s in able if mean(s, "rare_crps") <= least * SAME_CRPS]
    return min(close, key=lambda s: mean(s, "width"))


def table(lines: list[dict[str, Any]], caption: str) -> Table:
    """Return one row per setting."""
    rows = []
    for setting in SETTINGS:
        found = [ratio(lines, setting, figure) for figure in RATIOS]
        values = [[line["figures"][setting.name][c] for line in lines] for c in (*COVERAGES, "epochs")]
        means = [np.mean([v for v in column if v is not None]) for column in values]
        cells = [f"{mean:.3f} ± {spread:.3f}" for mean, spread in found[:-1]]
        rows.append(
            [
                setting.name,
                *cells,
                f"{found[-1][0]:.1f}",
                *(f"{m:.3f}" for m in means[:-1]),
                f"{means[-1]:.0f}",
            ]
        )
    head = ["setting", "MAE", "MAE rare", "CRPS", "CRPS rare", "width", "time"]
    return Table(caption, [*head, *(f"{c} covered" for c in ("all", "rare", "few-shot")), "epochs"], rows)


def page(lines: list[dict[str, Any]]) -> str:
    """Return the page of these results."""
    title, _, command, _, *about = (__doc__ or "").strip().splitlines()
    tables, seeds = (len({line[key] for line in lines}) for key in ("data", "seed"))
    origin = f"{tables} tables, {seeds} seeds. {' '.join(describe_origin(lines))}"
    shown = [*about, "", origin, "", f"**The rule chooses {chosen(lines).name}.**", ""]
    shown.append(table(lines, "Both sizes, mean ± standard deviation over seeds").markdown())
    for size in SIZES:
        own = [line for line in lines if line["rows"] == size]
        shown.append(table(own, f"At most {size:,} training rows").markdown())
    text = "\n".join(shown)
    return f"# {title.rstrip('.')}\n\nWritten by `{command.strip()}`; do not edit.\n\n{text}"


def main() -> int:
    """Run what is missing, print the page and write it if asked to."""
    options = script_parser(
        __doc__, seeds=2, tables=True, workers=1, results=DOCS / "stopping.jsonl", write=BESIDE
    ).parse_args()
    names = options.data.split(",") if options.data else [s.name for s in get_suite("development").sources]
    results = ResultsFile(options.results)
    done = {(line["data"], line["seed"], line["rows"]) for line in results.records}
    jobs = [(name, seed, rows) for rows in SIZES for seed in range(options.seeds) for name in names]
    with ProcessPoolExecutor(options.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(run, *job) for job in jobs if job not in done]):
            results.append(future.result())
            print(
                "finished",
                *(future.result()[k] for k in ("data", "seed", "rows")),
                file=sys.stderr,
                flush=True,
            )
    show(page(results.records), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
