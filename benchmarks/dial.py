"""Which floor and which prediction make the dial useful, on the development tables.

    python benchmarks/dial.py --seeds 2 --rows 4000 --write

`TailRegressor` with its defaults is fitted once per table and seed. Its predicted distributions are then
moved to every emphasis, with several floors of the label density (`tailwise.core.label_prior.FLOOR`), and the
mean or the median of the result is the prediction. Errors are divided by CatBoost's (RMSEWithUncertainty,
1,000 trees). `rare` has the 15% of the test labels that are rarest in training. `chosen` is the emphasis of
`choose_emphasis`, which sees held-out training rows only.

The rule: the prediction whose `chosen` row has the lower CRPS of rare labels while its MAE is at most
CatBoost's, and the smallest floor with which the MAE of rare labels falls along the whole dial. The rule was
written after a first look at half of the tables.
"""

from __future__ import annotations

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import torch

from script_options import BESIDE, script_parser, show
from tailwise._version import __version__
from tailwise.benchmark import Source, get_suite
from tailwise.benchmark.data.natural_splits import NaturalSplit, natural_split
from tailwise.benchmark.pages.markup import Table
from tailwise.benchmark.run.estimators import fit_catboost
from tailwise.benchmark.run.results import ResultsFile
from tailwise.benchmark.run.trace import commit, machine
from tailwise.core.distributions import Distribution
from tailwise.core.label_prior import LabelDensity, emphasis, rarest
from tailwise.core.scores import crps
from tailwise.data.tables.preprocessing import TablePreprocessor
from tailwise.estimator import TailRegressor
from tailwise.estimator.bases import AUTO, BASES, cross_fit, deal_folds
from tailwise.uncertainty.calibrator import ALLOWANCE, EMPHASES

DOCS = Path(__file__).parents[1] / "docs" / "results"
FLOORS = (0.01, 0.03, 0.1, 0.3)
SHOWN = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
POINTS = ("mean", "median")
FIGURES = ("mae", "rare_mae", "rare_crps")


def errors(found: Distribution, y: np.ndarray) -> dict[str, np.ndarray]:
    """Return the absolute error of the mean and of the median. (N,) each"""
    return {point: np.abs(getattr(found, point).double().numpy() - y) for point in POINTS}


def choose(held: list[np.ndarray], rare: np.ndarray, limit: float) -> int:
    """Return which setting the rule of `choose_emphasis` takes, from errors of held-out rows at each."""
    able = [k for k, error in enumerate(held) if error.mean() <= limit]
    return min(able, key=lambda k: held[k][rare].mean()) if able else 0


def measure(split: NaturalSplit) -> list[dict[str, Any]]:
    """Fit both models and return the figures of every floor, prediction and emphasis."""
    torch.set_num_threads(1)
    y, rare = split.y_test, split.rare
    reference = fit_catboost(split.x_train, split.y_train, split.seed)(split.x_test)
    against = {
        "mae": np.abs(reference.mean - y).mean(),
        "rare_mae": np.abs(reference.mean - y)[rare].mean(),
        "rare_crps": reference.crps(y, rare),
    }
    # As the default, but with the base's out-of-fold predictions at hand.
    matrices = TablePreprocessor().fit(split.x_train)
    train, test = (matrices.matrix(x) for x in (split.x_train, split.x_test))
    fold, even = deal_folds(split.y_train, split.seed), np.ones(len(split.y_train))
    base, out_of_fold = cross_fit(BASES[AUTO], train, split.y_train, even, fold, split.seed)
    limit = ALLOWANCE * np.abs(out_of_fold - split.y_train).mean()
    model = TailRegressor(random_state=split.seed, device="cpu")
    model.fit(split.x_train, split.y_train, base_prediction=out_of_fold)
    (calibrator,) = model.calibrators_
    held = calibrator.held
    found = model.predict_distribution(split.x_test, emphasis=0.0, base_prediction=base.predict(test))
    assert held is not None and isinstance(found, Distribution)
    few = torch.from_numpy(np.flatnonzero(rare))
    rows = []
    for floor in FLOORS:
        density = LabelDensity.from_bins(calibrator.bins, floor=floor)
        moved = [emphasis(density, t).apply(found) for t in EMPHASES]
        missed = [errors(each, y) for each in moved]
        scores = [crps(each[few], torch.from_numpy(y[rare])) for each in moved]
        own = [errors(emphasis(density, t).apply(held.prediction), held.labels) for t in EMPHASES]
        rarest_held = rarest(held.labels, density)
        for point in POINTS:
            chosen = choose([each[point] for each in own], rarest_held, limit)
            shown = [*((f"{t:g}", EMPHASES.index(t)) for t in SHOWN), ("chosen", chosen)]
            for name, k in shown:
                error = missed[k][point]
                values = (error.mean(), error[rare].mean(), scores[k])
                ratios = {f: float(v / against[f]) for f, v in zip(FIGURES, values, strict=True)}
                rows.append({"floor": floor, "point": point, "emphasis": name, "used": EMPHASES[k], **ratios})
    return rows


def run(name: str, seed: int, rows: int) -> dict[str, Any]:
    """Return the results line of one table and seed."""
    source = next(s for s in get_suite("development").sources if s.name == name)
    assert isinstance(source, Source)
    split = natural_split(source, seed, max_rows=rows)
    origin = {"version": __version__, "commit": commit(), "machine": machine()}
    return {"data": name, "seed": seed, "rows": rows, **origin, "figures": measure(split)}


def geometric(lines: list[dict[str, Any]], figure: str, **key: Any) -> tuple[float, float]:
    """Return the mean and the deviation over seeds of the geometric mean over tables."""
    by_seed: dict[int, list[float]] = {}
    for line in lines:
        for row in line["figures"]:
            if all(row[name] == value for name, value in key.items()):
                by_seed.setdefault(line["seed"], []).append(np.log(row[figure]))
    each = np.exp([np.mean(logs) for logs in by_seed.values()])
    return float(each.mean()), float(each.std(ddof=1)) if each.size > 1 else 0.0


def table(lines: list[dict[str, Any]], point: str) -> Table:
    """Return the errors along the dial with one prediction, a row for each floor."""
    rows = []
    for floor in FLOORS:
        cells = [f"{floor:g}"]
        for name in (*(f"{t:g}" for t in SHOWN), "chosen"):
            found = [geometric(lines, f, floor=floor, point=point, emphasis=name) for f in FIGURES]
            cells.append(" / ".join(f"{mean:.3f}" for mean, _ in found))
            if name == "chosen":
                cells[-1] += f" (± {max(spread for _, spread in found):.3f})"
        rows.append(cells)
    head = ["floor", *(f"emphasis {t:g}" for t in SHOWN), "chosen"]
    return Table(
        f"{point.capitalize()} as the prediction: MAE / MAE rare / CRPS rare over CatBoost's", head, rows
    )


def page(lines: list[dict[str, Any]]) -> str:
    """Return the page of these results."""
    title, _, command, _, *about = (__doc__ or "").strip().splitlines()
    commits = sorted({str(line["commit"]) for line in lines})
    machines = sorted({line["machine"] for line in lines})
    tables, seeds = (len({line[key] for line in lines}) for key in ("data", "seed"))
    origin = (
        f"{tables} tables, {seeds} seeds, at most {lines[0]['rows']:,} training rows. Commit "
        f"{', '.join(commits)}; {'; '.join(machines)}. Figures are geometric means over tables, means over "
        "seeds; ± is the largest deviation over seeds."
    )
    shown = "\n".join([*about, "", origin, "", *(table(lines, point).markdown() for point in POINTS)])
    return f"# {title.rstrip('.')}\n\nWritten by `{command.strip()}`; do not edit.\n\n{shown}"


def main() -> int:
    """Run what is missing, print the page and write it if asked to."""
    options = script_parser(
        __doc__, seeds=2, rows=4000, tables=True, workers=1, results=DOCS / "dial.jsonl", write=BESIDE
    ).parse_args()
    names = options.data.split(",") if options.data else [s.name for s in get_suite("development").sources]
    results = ResultsFile(options.results)
    done = {(line["data"], line["seed"], line["rows"]) for line in results.records}
    jobs = [(name, seed, options.rows) for seed in range(options.seeds) for name in names]
    with ProcessPoolExecutor(options.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(run, *job) for job in jobs if job not in done]):
            results.append(future.result())
            print(
                "finished", *(future.result()[key] for key in ("data", "seed")), file=sys.stderr, flush=True
            )
    text = page([line for line in results.records if line["rows"] == options.rows])
    show(text, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
