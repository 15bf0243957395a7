"""Networks for tables compared by validation error and time, to choose the default.

Every network of `tailwise.networks.backbones`, and the embeddings of the package `rtdl_num_embeddings` in
front of an MLP, are trained by `vir` and by `vanilla` on the seven tables of TAILWISE_DATA/tabular with three
seeds. Preprocessing is fitted on the training part. Test rows are not read; they come from a pool that all
seeds share, so that the choice can be judged on them later.

    TAILWISE_DATA=... python benchmarks/backbones.py --write

It takes about 40 minutes on one core. Finished runs are kept in docs/results/backbones.jsonl and not
repeated: the script can be stopped and started again. Delete that file to start over.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from script_options import BESIDE, script_parser, show
from tailwise.benchmark.data.problems import Problem
from tailwise.benchmark.data.suites import get_suite
from tailwise.benchmark.pages.origin import describe_origin
from tailwise.benchmark.run.trace import machine, trace_of, unchanged
from tailwise.data import label_holdout
from tailwise.learning.loop import TrainConfig, fit, predict
from tailwise.methods import build_model
from tailwise.metrics import get_metric
from tailwise.networks.backbones import BACKBONES, MLP, Backbone, make_backbone

DOCS = Path(__file__).parents[1] / "docs" / "results"
TABLES = tuple(source.name for source in get_suite("tabular").sources)
METHODS = ("vir", "vanilla")
ROWS, PER_BIN = 4000, 20
RECIPE = TrainConfig(epochs=60, patience=10, lr=1e-3, accelerator="cpu")
BASE = "mlp"
BINS = 16


# -- the package rtdl_num_embeddings ---------------------------------------------------------------


class PackageEmbedded(Backbone):
    """The package's embeddings of some columns, together with the other columns unchanged."""

    def __init__(self, embedding: nn.Module, columns: Tensor, in_dim: int) -> None:
        super().__init__()
        self.embedding = embedding
        self.register_buffer("columns", columns)
        self.register_buffer(
            "others", torch.tensor(sorted({*range(in_dim)} - {*columns.tolist()}), dtype=torch.int64)
        )
        width = len(self.others) + embedding.get_output_shape().numel()
        self.network = MLP(width)
        self.feature_dim = self.network.feature_dim

    def forward(self, x: Tensor) -> Tensor:
        """x: (N, in_dim) -> features (N, feature_dim)"""
        embedded = self.embedding(x[:, self.columns]).flatten(1)
        return self.network(torch.cat([x[:, self.others], embedded], 1))


def package_periodic(rows: Tensor) -> Backbone:
    """PLR(lite) with the package's defaults: 48 frequencies of scale 0.01, 24 numbers a column."""
    from rtdl_num_embeddings import PeriodicEmbeddings

    columns = numbers(rows)
    return PackageEmbedded(PeriodicEmbeddings(len(columns), lite=True), columns, rows.shape[1])


def package_encoding(rows: Tensor) -> Backbone:
    """The piecewise-linear encoding alone, with 16 quantile bins; `mlp-ple` also keeps the numbers."""
    from rtdl_num_embeddings import PiecewiseLinearEncoding, compute_bins

    columns = numbers(rows)
    bins = compute_bins(rows[:, columns], BINS)
    return PackageEmbedded(PiecewiseLinearEncoding(bins), columns, rows.shape[1])


def package_piecewise(rows: Tensor) -> Backbone:
    """Piecewise-linear embeddings, version B as in TabM: 16 quantile bins, 12 numbers a column."""
    from rtdl_num_embeddings import PiecewiseLinearEmbeddings, compute_bins

    columns = numbers(rows)
    embedding = PiecewiseLinearEmbeddings(
        compute_bins(rows[:, columns], BINS), 12, activation=False, version="B"
    )
    return PackageEmbedded(embedding, columns, rows.shape[1])


def numbers(rows: Tensor) -> Tensor:
    """Return the columns with more than one quantile bin, which the package requires."""
    edges = torch.quantile(rows, torch.linspace(0, 1, BINS + 1), dim=0)
    return torch.tensor([j for j in range(rows.shape[1]) if len(edges[:, j].unique()) > 2])


PACKAGE: dict[str, Callable[[Tensor], Backbone]] = {
    "rtdl-plr": package_periodic,
    "rtdl-encoding": package_encoding,
    "rtdl-ple": package_piecewise,
}


def networks() -> list[str]:
    """Return the names of all networks; without the package, only ours."""
    try:
        import rtdl_num_embeddings  # noqa: F401
    except ImportError:
        print("rtdl_num_embeddings is not installed: its rows are left out", file=sys.stderr)
        return list(BACKBONES)
    return [*BACKBONES, *PACKAGE]


# -- runs ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """One training of a network: its error on validation rows and its cost."""

    table: str
    seed: int
    network: str
    method: str
    error: float
    """Balanced mean absolute error of the judging half, divided by the labels' standard deviation."""
    seconds: float
    epochs: int
    parameters: int
    machine: str = "unknown"
    trace: dict[str, Any] = field(default_factory=dict)


def train(problem: Problem, network: str, method: str) -> Run:
    """Train a network; half of the validation rows stop training early, the other half judge it."""
    trace = trace_of(method)
    torch.manual_seed(problem.seed)
    x, y = torch.from_numpy(problem.x_train), torch.from_numpy(problem.y_train)
    judged = label_holdout(problem.y_valid, share=0.5, seed=problem.seed)
    watched = np.setdiff1d(np.arange(len(problem.y_valid)), judged)
    stop, judge = (
        (torch.from_numpy(problem.x_valid[rows]), torch.from_numpy(problem.y_valid[rows]))
        for rows in (watched, judged)
    )
    began = time.process_time()
    backbone = PACKAGE[network](x) if network in PACKAGE else make_backbone(network, x.shape[1], rows=x)
    model = build_model(method, backbone, backbone.feature_dim, problem.bins)
    result = fit(model, (x, y), stop, replace(RECIPE, seed=problem.seed), progress=False)
    seconds = time.process_time() - began
    error = get_metric(RECIPE.monitor)(predict(model, judge[0]), judge[1], problem.bins)
    return Run(
        table=problem.name,
        seed=problem.seed,
        network=network,
        method=method,
        error=error / float(problem.y_train.std()),
        seconds=seconds,
        epochs=len(result.history),
        parameters=count(backbone),
        machine=machine(),
        trace=trace,
    )


def count(network: nn.Module) -> int:
    """Return the number of trained parameters."""
    return sum(p.numel() for p in network.parameters())


def complete(runs: list[Run], names: Sequence[str], seeds: Sequence[int], keep: Path) -> None:
    """Do the missing runs; add them to `runs` and to the file."""
    done = {(run.table, run.seed, run.network, run.method) for run in runs}
    for seed in seeds:
        for source in get_suite("tabular").sources:
            missing = [(n, m) for n in names for m in METHODS if (source.name, seed, n, m) not in done]
            if not missing:
                continue
            problem = source.problem(seed, max_rows=ROWS, per_bin=PER_BIN, suite="tabular")
            for network, method in missing:
                run = train(problem, network, method)
                runs.append(run)
                with keep.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(run)) + "\n")
                print(
                    f"{run.table} {seed} {network} {method}: {run.error:.3f} in {run.seconds:.1f} s",
                    flush=True,
                )


# -- figures -----------------------------------------------------------------------------------


def mean(runs: Iterable[Run], figure: Callable[[Run], float]) -> float:
    """Average a figure over runs."""
    return statistics.fmean(map(figure, runs))


def relative(runs: Sequence[Run], network: str, seed: int, tables: Iterable[str] = TABLES) -> float:
    """Return the geometric mean over tables and methods of a network's error divided by the MLP's."""
    errors = {(r.network, r.table, r.method): r.error for r in runs if r.seed == seed}
    return statistics.geometric_mean(
        errors[network, table, method] / errors[BASE, table, method] for table in tables for method in METHODS
    )


def spread(values: Sequence[float]) -> float:
    """Return the standard deviation over seeds; 0 for a single one."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def summary(runs: Sequence[Run], networks: Sequence[str], seeds: Sequence[int]) -> list[str]:
    """Return a Markdown table with a row for each network."""
    lines = [
        "| network | error | `vir` alone | `vanilla` alone | against `mlp` | seconds | epochs | parameters |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for network in networks:
        own = [run for run in runs if run.network == network and run.seed in seeds]
        cells = [f"`{network}`"]
        for methods in (METHODS, ("vir",), ("vanilla",)):
            errors = [
                mean((r for r in own if r.seed == seed and r.method in methods), lambda r: r.error)
                for seed in seeds
            ]
            cells.append(f"{statistics.fmean(errors):.3f} ± {spread(errors):.3f}")
        ratios = [relative(runs, network, seed) for seed in seeds]
        cells.append(f"{statistics.fmean(ratios):.3f} ± {spread(ratios):.3f}")
        cells.append(f"{mean(own, lambda r: r.seconds):.1f}")
        cells.append(f"{mean(own, lambda r: r.epochs):.0f}")
        cells.append(f"{mean(own, lambda r: r.parameters):,.0f}")
        lines.append(f"| {' | '.join(cells)} |")
    return [line.replace(" ± 0.000", "") for line in lines] if len(seeds) == 1 else lines


def per_table(runs: Sequence[Run], networks: Sequence[str], seeds: Sequence[int]) -> list[str]:
    """Return a Markdown table with a row for each table and method, the best network in bold."""
    lines = [
        f"| table | method | {' | '.join(f'`{network}`' for network in networks)} |",
        f"|---|---|{'---|' * len(networks)}",
    ]
    for table in TABLES:
        for method in METHODS:
            errors = [
                mean(
                    (
                        r
                        for r in runs
                        if (r.table, r.method, r.network) == (table, method, network) and r.seed in seeds
                    ),
                    lambda r: r.error,
                )
                for network in networks
            ]
            cells = [f"**{e:.3f}**" if e == min(errors) else f"{e:.3f}" for e in errors]
            lines.append(f"| {table} | `{method}` | {' | '.join(cells)} |")
    return lines


def page(runs: Sequence[Run], names: Sequence[str], seeds: Sequence[int], choice: str) -> str:
    """Return the page."""
    ranked = sorted(names, key=lambda n: statistics.fmean(relative(runs, n, seed) for seed in seeds))
    listed = ", ".join(map(str, seeds))
    parts = [
        "# Networks for tables",
        "",
        "Written by `TAILWISE_DATA=... python benchmarks/backbones.py --write"
        f" --seeds {listed.replace(', ', ' ')}` from the runs in `backbones.jsonl`; do not edit.",
        "",
        "Each network of `tailwise.networks.backbones.BACKBONES` with its default options, trained by `vir` "
        f"and by `vanilla` on seven tables with seeds {listed}. All have the same limits, so that one core "
        f"needs less than an hour: at most {ROWS:,} training rows, {RECIPE.epochs} epochs, patience "
        f"{RECIPE.patience}, learning rate {RECIPE.lr:g} and batches of {RECIPE.batch_size}. Validation "
        f"parts are balanced over the label bins, with at most {PER_BIN} rows per bin.",
        "",
        "Half of the validation rows of every label bin decide which epoch is kept. *error* is the "
        "balanced mean absolute error on the other half, divided by the standard deviation of the training "
        "labels and averaged over tables and methods. "
        "*against `mlp`* is the geometric mean over tables and methods of the error divided by the plain "
        "MLP's on the same split; below 1 is better. *seconds* is the processor time of one fit on one core "
        "without preprocessing. *parameters* counts the network without latent and head. ± is the standard "
        "deviation over seeds; each seed has its own split.",
        "",
        "**The choice is made on the validation parts of these seven tables**, which are also the tables of "
        "[tabular.md](tabular.md) and [coverage.md](coverage.md). Test rows were not read; they come from a "
        "pool that all seeds share. The defaults of the `-ple` networks (16 bins, and the numbers together "
        "with their encoding) were found earlier on validation parts of these tables. Those of `tabm` (8 "
        "members) were set in advance and not tuned.",
        "",
        "`tabm` is TabM (Gorishniy et al., ICLR 2025); a test shows that it equals its authors' package for "
        "the same weights. Each member has its own head and loss. `rtdl-...` are the embeddings of the "
        "package [rtdl_num_embeddings](https://pypi.org/project/rtdl-num-embeddings/) in front of the same "
        f"MLP, for the columns with more than one of {BINS} quantile bins; the other columns enter "
        "unchanged. `rtdl-plr` is PLR(lite) with its defaults, `rtdl-encoding` the piecewise-linear "
        f"encoding with {BINS} quantile bins, and `rtdl-ple` its learnt embeddings (version B, 12 numbers "
        "per column). Ours differ on purpose: frequencies start ten times larger, the numbers are kept with "
        "their embedding, and the outer bins are bounded.",
        "",
        " ".join(describe_origin([{**asdict(r), "data": r.table, "title": r.network} for r in runs])),
        "",
        *summary(runs, ranked, seeds),
        "",
        *per_table(runs, ranked, seeds),
        "",
        "## Choice",
        "",
        choice,
        "",
    ]
    return "\n".join(parts)


def verdict(runs: Sequence[Run], names: Sequence[str], seeds: Sequence[int]) -> str:
    """Return sentences that say which network is chosen and why, computed from the runs."""
    ratios = {n: [relative(runs, n, seed) for seed in seeds] for n in names}
    seconds = {n: mean((r for r in runs if r.network == n), lambda r: r.seconds) for n in names}
    best = min(names, key=lambda n: statistics.fmean(ratios[n]))
    lowest = statistics.fmean(ratios[best])
    # Networks are compared on the same splits, seed by seed. A mean difference below its standard deviation
    # over seeds is a tie, and the fastest of those that tie with the best is chosen.
    behind = {n: [own - top for own, top in zip(ratios[n], ratios[best], strict=True)] for n in names}
    close = [n for n in names if statistics.fmean(behind[n]) <= spread(behind[n])]
    chosen = min(close, key=seconds.__getitem__)
    gain = 1 - statistics.fmean(ratios[chosen])
    wins = 0
    for table in TABLES:
        for method in METHODS:
            errors = {
                name: mean(
                    (r for r in runs if (r.network, r.table, r.method) == (name, table, method)),
                    lambda r: r.error,
                )
                for name in (chosen, BASE)
            }
            wins += errors[chosen] < errors[BASE]
    text = (
        f"`{chosen}`: its error is {gain:.1%} below that of `{BASE}` (geometric mean over tables and "
        f"methods, {len(seeds)} seeds) and lower for {wins} of {len(TABLES) * len(METHODS)} pairs of table "
        f"and method. A fit takes {seconds[chosen]:.1f} instead of {seconds[BASE]:.1f} seconds."
    )
    alone = {t: statistics.fmean(relative(runs, chosen, seed, [t]) for seed in seeds) for t in TABLES}
    most = min(alone, key=alone.__getitem__)
    others = [t for t in TABLES if t != most]
    without = 1 - statistics.fmean(relative(runs, chosen, seed, others) for seed in seeds)
    text += f" {most} gains most ({1 - alone[most]:.1%}); the other tables gain {without:.1%} together."
    if chosen != best:
        text += (
            f" `{best}` has the lowest ratio ({lowest:.3f}), but its lead over `{chosen}` is only "
            f"{statistics.fmean(behind[chosen]):.3f} ± {spread(behind[chosen]):.3f} over seeds, and it takes "
            f"{seconds[best]:.1f} seconds. This is a tie, and the faster network is chosen. The rule for "
            "ties was set before `tabm` and the package's embeddings were added."
        )
    return text


def main() -> int:
    """Run what is missing, print the page and write it if asked to."""
    options = script_parser(
        __doc__, seeds=(0, 1, 2), results=DOCS / "backbones.jsonl", write=BESIDE
    ).parse_args()
    torch.set_num_threads(1)
    runs: list[Run] = []
    if options.results.exists():
        lines = options.results.read_text(encoding="utf-8").splitlines()
        runs = [Run(**line) for line in unchanged(map(json.loads, lines))]
    names = networks()
    done = {(run.table, run.seed, run.network, run.method) for run in runs}
    wanted = set(itertools.product(TABLES, options.seeds, names, METHODS))
    if not wanted <= done and "TAILWISE_DATA" not in os.environ:
        print("set TAILWISE_DATA to the folder with tabular/*.csv.gz", file=sys.stderr)
        return 2
    complete(runs, names, options.seeds, options.results)
    text = page(runs, names, options.seeds, verdict(runs, names, options.seeds))
    show(text, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
