"""Which network should tables get by default? Networks compared by validation error and time.

Every network is trained by `vir` and by `vanilla` on the seven tables of TAILWISE_DATA/tabular. First
all of them with one seed; then the best ones and the plain MLP with all seeds. Preprocessing is fitted
on the training part. No test row is read: what is chosen here can be judged on them later.

    TAILWISE_DATA=... python benchmarks/backbones.py --write

It takes about ten minutes on two idle cores. `--results FILE` keeps finished runs there and does not
repeat them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skrub import TableVectorizer
from torch import nn

from tailwise.backbones import BACKBONES, make_backbone
from tailwise.data import Split, balanced_split
from tailwise.labels import LabelBins
from tailwise.methods import build_model
from tailwise.training import TrainConfig, fit

PAGE = Path(__file__).parents[1] / "docs" / "results" / "backbones.md"
TABLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "abalone": ("Rings", ()),
    "check_times": ("check_time", ()),
    "flchain": ("kappa", ("lambda", "flc.grp")),  # leaks
    "hotel_rates": ("avg_price_per_room", ()),
    "deliveries": ("time_to_delivery", ()),
    "bikeshare": ("bikers", ("casual", "registered")),  # their sum
    "diamonds": ("price", ()),
}
METHODS = ("vir", "vanilla")
ROWS, PER_BIN = 6000, 20
RECIPE = TrainConfig(epochs=80, patience=12, lr=1e-3, accelerator="cpu")
BASE = "mlp"


@dataclass(frozen=True)
class Run:
    """One network trained once: its best validation error, and what it took."""

    table: str
    seed: int
    network: str
    method: str
    error: float
    """Balanced mean absolute error of the validation part, by the training labels' deviation."""
    seconds: float
    epochs: int
    parameters: int


def prepared(table: str, seed: int) -> tuple[torch.Tensor, np.ndarray, Split]:
    """Return inputs with preprocessing fitted on the training rows, labels, and the split."""
    target, dropped = TABLES[table]
    frame = pd.read_csv(Path(os.environ["TAILWISE_DATA"]) / "tabular" / f"{table}.csv.gz")
    frame = frame.drop(columns=list(dropped))
    labels = frame.pop(target).to_numpy(np.float64)
    split = balanced_split(labels, per_bin=PER_BIN, seed=seed)
    train = split.train
    if len(train) > ROWS:
        train = np.sort(np.random.default_rng(seed).choice(train, ROWS, replace=False))
    steps = make_pipeline(TableVectorizer(), SimpleImputer(), StandardScaler())
    steps.fit(frame.iloc[train])
    inputs = np.clip(np.asarray(steps.transform(frame)), -8, 8)
    return torch.as_tensor(inputs, dtype=torch.float32), labels, Split(train, split.valid, split.test)


def train_all(table: str, seed: int, networks: Sequence[str]) -> list[Run]:
    """Train networks by each method on one split of a table."""
    torch.set_num_threads(1)
    x, labels, split = prepared(table, seed)
    y, train, valid = torch.as_tensor(labels), split.train, split.valid
    bins = LabelBins.from_labels(labels[train])
    runs = []
    for network in networks:
        for method in METHODS:
            torch.manual_seed(seed)
            backbone = make_backbone(network, x.shape[1], rows=x[train])
            model = build_model(method, backbone, backbone.feature_dim, bins)
            began = time.process_time()
            result = fit(
                model,
                (x[train], y[train]),
                (x[valid], y[valid]),
                replace(RECIPE, seed=seed),
                progress=False,
            )
            runs.append(
                Run(
                    table=table,
                    seed=seed,
                    network=network,
                    method=method,
                    error=result.best_score / float(labels[train].std()),
                    seconds=time.process_time() - began,
                    epochs=len(result.history),
                    parameters=count(backbone),
                )
            )
    return runs


def count(network: nn.Module) -> int:
    """Return how many numbers a network learns."""
    return sum(p.numel() for p in network.parameters())


def complete(
    runs: list[Run], wanted: Iterable[tuple[str, int, str]], workers: int, keep: Path | None
) -> None:
    """Add to `runs` what is missing of the wanted (table, seed, network), in `workers` processes."""
    done = {(run.table, run.seed, run.network) for run in runs}
    jobs: dict[tuple[str, int], list[str]] = defaultdict(list)
    for table, seed, network in wanted:
        if (table, seed, network) not in done:
            jobs[table, seed].append(network)
    # Spawned, not forked: a fork of a process that has used torch's threads can hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        futures = [pool.submit(train_all, table, seed, networks) for (table, seed), networks in jobs.items()]
        for future in futures:
            found = future.result()
            runs += found
            print(f"{found[0].table}, seed {found[0].seed}: ", end="")
            print(", ".join(f"{run.network} {run.method} {run.error:.3f}" for run in found), flush=True)
            if keep is not None:
                with keep.open("a") as file:
                    file.writelines(json.dumps(asdict(run)) + "\n" for run in found)


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


def page(runs: Sequence[Run], finalists: Sequence[str], seeds: Sequence[int], choice: str) -> str:
    """Write the results up."""
    everything = sorted(BACKBONES, key=lambda network: relative(runs, network, seeds[0]))
    listed = ", ".join(map(str, seeds))
    parts = [
        "# Networks for tables",
        "",
        "Written by `TAILWISE_DATA=... python benchmarks/backbones.py --write"
        f" --seeds {listed.replace(', ', ' ')}`; do not edit.",
        "",
        "Each network of `tailwise.backbones.BACKBONES`, with its default options, trained by `vir` and by "
        f"`vanilla` on seven tables: at most {ROWS:,} training rows, validation and test parts balanced over "
        f"the label bins (`balanced_split`, {PER_BIN} rows per bin at most), at most {RECIPE.epochs} epochs, "
        f"patience {RECIPE.patience}, learning rate {RECIPE.lr:g}, batches of "
        f"{RECIPE.batch_size}. *error* is the balanced mean absolute error of the "
        "validation part at the epoch that training keeps, divided by the standard deviation of the training "
        "labels, averaged over tables and methods. *against `mlp`* is the geometric mean over tables and "
        "methods of the error by that of the plain MLP on the same split: below 1 is better. *seconds* is "
        "processor time of one fit on one core, preprocessing left out; *parameters* are those of the "
        "network without latent and head. ± is the standard deviation over seeds, each with a split of its "
        "own. Being the best of the epochs on the rows it is measured on, the error is a little too good for "
        "every network alike; the test part was not looked at.",
        "",
        f"All networks were trained with seed {seeds[0]}, the best {len(finalists) - 1} of them and `{BASE}` "
        "with every seed. The defaults of the `-ple` networks (16 bins, and the numbers themselves beside "
        "their encoding) were found on the validation parts of seed 0. `tabm-mean` averages the features of "
        "members under one head and loss, which is less than TabM, where each member has its own.",
        "",
        f"## {len(seeds)} seeds ({listed})",
        "",
        *summary(runs, finalists, seeds),
        "",
        *per_table(runs, finalists, seeds),
        "",
        f"## All networks, seed {seeds[0]}",
        "",
        *summary(runs, everything, seeds[:1]),
        "",
        *per_table(runs, everything, seeds[:1]),
        "",
        "## Choice",
        "",
        choice,
        "",
    ]
    return "\n".join(parts)


def verdict(runs: Sequence[Run], finalists: Sequence[str], seeds: Sequence[int]) -> str:
    """Say in words which network is chosen, from the figures alone."""
    ratios = {n: [relative(runs, n, seed) for seed in seeds] for n in finalists}
    seconds = {n: mean((r for r in runs if r.network == n), lambda r: r.seconds) for n in finalists}
    best = min(finalists, key=lambda n: statistics.fmean(ratios[n]))
    lowest = statistics.fmean(ratios[best])
    # Seeds share splits, so networks are compared seed by seed: a difference below its own deviation
    # over seeds is a tie, and of those that tie with the best one the fastest is taken.
    behind = {n: [own - top for own, top in zip(ratios[n], ratios[best], strict=True)] for n in finalists}
    close = [n for n in finalists if statistics.fmean(behind[n]) <= spread(behind[n])]
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
            "was settled with these figures in view."
        )
    return text


def main() -> int:
    """Run what is missing, print the page and write it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--finalists", type=int, default=3, help="networks that get every seed, with mlp")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results", type=Path, help="file of finished runs, to add to and not to repeat")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args()
    if "TAILWISE_DATA" not in os.environ:
        print("set TAILWISE_DATA to the folder that holds tabular/*.csv.gz", file=sys.stderr)
        return 2
    seeds, runs = options.seeds, []
    if options.results is not None and options.results.exists():
        runs = [Run(**json.loads(line)) for line in options.results.read_text().splitlines()]
    first = [(table, seeds[0], network) for table in TABLES for network in BACKBONES]
    complete(runs, first, options.workers, options.results)
    ranked = sorted(BACKBONES, key=lambda network: relative(runs, network, seeds[0]))
    finalists = [n for n in ranked if n != BASE][: options.finalists]
    finalists = sorted([*finalists, BASE], key=ranked.index)
    rest = [(table, seed, network) for seed in seeds[1:] for table in TABLES for network in finalists]
    complete(runs, rest, options.workers, options.results)
    text = page(runs, finalists, seeds, verdict(runs, finalists, seeds))
    print(text)
    if options.write:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
