"""Which network should tables get by default? Networks compared by validation error and time.

Every network of `tailwise.networks.backbones`, and the embeddings of the package `rtdl_num_embeddings` in
front of an MLP, trained by `vir` and by `vanilla` on the seven tables of TAILWISE_DATA/tabular with three
seeds. Preprocessing is fitted on the training part. No test row is read: they come from a pool that all seeds
share, so that what is chosen here can be judged on them later.

    TAILWISE_DATA=... python benchmarks/backbones.py --write

It takes about 40 minutes of one core. Finished runs are kept in docs/results/backbones.jsonl and not
repeated: stop it and start it again as you like, and delete that file to start over.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tailwise.benchmark.data.problems import Problem
from tailwise.benchmark.data.suites import get_suite
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
    """The package's embeddings of some columns, beside the other ones as they are."""

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
    """The piecewise-linear encoding alone, 16 quantile bins: what `mlp-ple` has beside the numbers."""
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
    """Columns that have more than one quantile bin, which the package asks for."""
    edges = torch.quantile(rows, torch.linspace(0, 1, BINS + 1), dim=0)
    return torch.tensor([j for j in range(rows.shape[1]) if len(edges[:, j].unique()) > 2])


PACKAGE: dict[str, Callable[[Tensor], Backbone]] = {
    "rtdl-plr": package_periodic,
    "rtdl-encoding": package_encoding,
    "rtdl-ple": package_piecewise,
}


def networks() -> list[str]:
    """Names of all networks; without the package, which is then named, those of our own."""
    try:
        import rtdl_num_embeddings  # noqa: F401
    except ImportError:
        print("rtdl_num_embeddings is not installed: its rows are left out", file=sys.stderr)
        return list(BACKBONES)
    return [*BACKBONES, *PACKAGE]


# -- runs ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """One network trained once: its error on validation rows, and what it took."""

    table: str
    seed: int
    network: str
    method: str
    error: float
    """Balanced mean absolute error of the judging half, by the training labels' deviation."""
    seconds: float
    epochs: int
    parameters: int


def train(problem: Problem, network: str, method: str) -> Run:
    """Train a network once, by a method: one half of the validation rows stops it, the other judges."""
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
    )


def count(network: nn.Module) -> int:
    """Return how many numbers a network learns."""
    return sum(p.numel() for p in network.parameters())


def complete(runs: list[Run], names: Sequence[str], seeds: Sequence[int], keep: Path) -> None:
    """Add to `runs`, and to the file, what is missing of all tables, seeds, networks and methods."""
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
    """Geometric mean over tables and methods of a network's error by the plain MLP's."""
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
    """Write the results up."""
    ranked = sorted(names, key=lambda n: statistics.fmean(relative(runs, n, seed) for seed in seeds))
    listed = ", ".join(map(str, seeds))
    parts = [
        "# Networks for tables",
        "",
        "Written by `TAILWISE_DATA=... python benchmarks/backbones.py --write"
        f" --seeds {listed.replace(', ', ' ')}` from the runs in `backbones.jsonl`; do not edit.",
        "",
        "Each network of `tailwise.networks.backbones.BACKBONES` with its default options, trained by `vir` "
        f"and by `vanilla` on seven tables with seeds {listed}. The same caps for all, so that it takes a "
        f"core less than an hour: at most {ROWS:,} training rows, {RECIPE.epochs} epochs, patience "
        f"{RECIPE.patience}, "
        f"learning rate {RECIPE.lr:g}, batches of {RECIPE.batch_size}; validation parts balanced over the "
        f"label bins, {PER_BIN} rows per bin at most.",
        "",
        "One half of the validation rows of every label bin decides which epoch is kept; *error* is the "
        "balanced mean absolute error on the other half, divided by the standard deviation of the training "
        "labels, averaged over tables and methods. "
        "*against `mlp`* is the geometric mean over tables and methods of the error by that of the plain MLP "
        "on the same split: below 1 is better. *seconds* is processor time of one fit on one core, "
        "preprocessing left out; *parameters* are those of the network without latent and head. ± is the "
        "standard deviation over seeds, each with a split of its own.",
        "",
        "**The choice is made on the validation parts of these seven tables**, and the tables of "
        "[tabular.md](tabular.md) and [coverage.md](coverage.md) are the same seven. Test rows were not "
        "looked at: they come from a pool that all seeds share. The defaults of the `-ple` networks (16 "
        "bins, and the numbers themselves beside their encoding) were found earlier on validation parts of "
        "these tables; those of `tabm` (8 members) were set beforehand and not tuned.",
        "",
        "`tabm` is TabM (Gorishniy et al., ICLR 2025), tested to equal its authors' package for the same "
        "weights: each member has its own head and loss. `rtdl-...` are the embeddings of the package "
        "[rtdl_num_embeddings](https://pypi.org/project/rtdl-num-embeddings/) in front of the same MLP, for "
        f"the columns that have more than one quantile bin of {BINS}, the others going in as they are: "
        f"`rtdl-plr` PLR(lite) with its defaults, `rtdl-encoding` the piecewise-linear encoding with {BINS} "
        "quantile bins, `rtdl-ple` its learnt embeddings (version B, 12 numbers a column). Ours differ on "
        "purpose: frequencies start ten times larger, the numbers stay beside their embedding, and the outer "
        "bins are bounded.",
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
    """Say in words which network is chosen, from the figures alone."""
    ratios = {n: [relative(runs, n, seed) for seed in seeds] for n in names}
    seconds = {n: mean((r for r in runs if r.network == n), lambda r: r.seconds) for n in names}
    best = min(names, key=lambda n: statistics.fmean(ratios[n]))
    lowest = statistics.fmean(ratios[best])
    # Seeds share splits, so networks are compared seed by seed: a difference below its own deviation
    # over seeds is a tie, and of those that tie with the best one the fastest is taken.
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
        f"methods, {len(seeds)} seeds), lower on {wins} of {len(TABLES) * len(METHODS)} pairs of table and "
        f"method, for {seconds[chosen]:.1f} instead of {seconds[BASE]:.1f} seconds a fit."
    )
    alone = {t: statistics.fmean(relative(runs, chosen, seed, [t]) for seed in seeds) for t in TABLES}
    most = min(alone, key=alone.__getitem__)
    others = [t for t in TABLES if t != most]
    without = 1 - statistics.fmean(relative(runs, chosen, seed, others) for seed in seeds)
    text += f" {most} gains most ({1 - alone[most]:.1%}); the other tables gain {without:.1%} together."
    if chosen != best:
        text += (
            f" `{best}` has the lowest ratio ({lowest:.3f}), but seed by seed it is ahead of `{chosen}` by "
            f"only {statistics.fmean(behind[chosen]):.3f} ± {spread(behind[chosen]):.3f} and takes "
            f"{seconds[best]:.1f} seconds: a tie, in which the faster network is taken. This rule for ties "
            "was settled before `tabm` and the package's embeddings were added."
        )
    return text


def main() -> int:
    """Run what is missing, print the page and write it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--results", type=Path, default=DOCS / "backbones.jsonl", help="resumed if it exists")
    parser.add_argument("--write", action="store_true", help="write docs/results/backbones.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs: list[Run] = []
    if options.results.exists():
        runs = [Run(**json.loads(line)) for line in options.results.read_text(encoding="utf-8").splitlines()]
    names = networks()
    done = {(run.table, run.seed, run.network, run.method) for run in runs}
    wanted = set(itertools.product(TABLES, options.seeds, names, METHODS))
    if not wanted <= done and "TAILWISE_DATA" not in os.environ:
        print("set TAILWISE_DATA to the folder that holds tabular/*.csv.gz", file=sys.stderr)
        return 2
    complete(runs, names, options.seeds, options.results)
    text = page(runs, names, options.seeds, verdict(runs, names, options.seeds))
    print(text)
    if options.write:
        (DOCS / "backbones.md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
