"""Methods as `tailwise fit` trains them, on the rows that it holds out: a results line for each."""

from __future__ import annotations

import hashlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from joblib import Parallel, delayed, parallel_config

from tailwise._version import __version__
from tailwise.labels.bins import LabelBins
from tailwise.methods.plugins import load_plugin, loaded_plugins, plugin_source
from tailwise.metrics.regions import by_bin
from tailwise.report.results import (
    TAIL,
    TAIL_BALANCED,
    Record,
    append_record,
    finished_runs,
    machine,
    read_results,
)
from tailwise.report.scores import Floats, Scores, Seen, fit_rival, score_constant, score_trees
from tailwise.report.wording import number
from tailwise.tables.rows import label_holdout, pooled_split
from tailwise.writing import claimed

if TYPE_CHECKING:
    import pandas as pd

    from tailwise.estimator import TailRegressor

PLAIN_NAME, CONSTANT = "plain", "constant"
PLAIN: Mapping[str, Any] = {
    "method": "vanilla",
    "method_options": None,
    "base": None,
    "folds": 1,
    "emphasis": 0.0,
}
"""Parameters of the plain network: one network with a squared loss, without a base and without a dial."""
TITLES = {PLAIN_NAME: "plain network", TAIL: "TailRegressor"}
BOOSTED = ("catboost", "catboost-weighted")
"""Boosted trees: the baseline on the page of `fit`, and the same on the raw label with label weights."""
UNTRAINED = (*BOOSTED, CONSTANT)
"""Methods that are no networks."""
DEFAULT = (PLAIN_NAME, *BOOSTED, CONSTANT, TAIL)
"""What is compared unless told otherwise."""
COVERAGE, TEST_SHARE = 0.9, 0.2
OF_THE_MEAN = ("mae", "rmse")
OF_THE_SPREAD = ("nll", "ause", "crps", "coverage", "width", "interval_score")
"""Figures of a results line: those that calibration does not change, and the others."""


@dataclass(frozen=True, eq=False)
class Contest:
    """A table, and what is trained on it; seed s has the rows and the networks of ``fit --seed s``."""

    name: str
    inputs: pd.DataFrame
    labels: Floats  # (N,)
    methods: tuple[str, ...]
    epochs: int | None = None
    balanced: bool = False
    """Test on equally many rows of every label bin, at most 20, instead of on `TEST_SHARE` of each bin."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Other parameters of every model, such as the network for pictures."""

    @property
    def recipe(self) -> dict[str, Any]:
        """The settings of a results line; the code of plugins is one of them."""
        sources = {name: source for name in self.methods if (source := plugin_source(name))}
        plugins = {name: hashlib.sha256(source).hexdigest()[:12] for name, source in sources.items()}
        return {
            "rows": "balanced" if self.balanced else "as they occur",
            "epochs": self.epochs or "auto",
            "coverage": COVERAGE,
            **({"plugins": plugins} if plugins else {}),
            **self.settings,
        }

    def digest(self, seed: int) -> str:
        """Return a short hash of the rows and of how they are divided."""
        import pandas as pd

        whole = hashlib.sha256(pd.util.hash_pandas_object(self.inputs, index=False).to_numpy().tobytes())
        whole.update(self.labels.tobytes())
        whole.update(self._split(seed)[1].tobytes())
        return whole.hexdigest()[:12]

    def _split(self, seed: int) -> tuple[Any, Any]:
        """Return the numbers of training and test rows."""
        if self.balanced:
            split = pooled_split(self.labels, seed=seed)
            return np.union1d(split.train, split.valid), split.test
        test = label_holdout(self.labels, share=TEST_SHARE, seed=seed, pool_small=True)
        return np.setdiff1d(np.arange(len(self.labels)), test), test

    def training_bins(self, seed: int) -> LabelBins:
        """Return the bins of the training labels."""
        return LabelBins.from_labels(self.labels[self._split(seed)[0]])

    def _model(self, seed: int, **settings: Any) -> TailRegressor:
        from tailwise.estimator import TailRegressor

        known = {"random_state": seed, "epochs": self.epochs or "auto", **self.settings}
        return TailRegressor(**{**known, **settings})

    def scored(self, seed: int) -> dict[str, tuple[Scores, float]]:
        """Train every method and score it on the same test rows; return scores and seconds by name.

        Regions go by the first model whose folds are the default, as on the page of `fit`. Boosted trees are
        its base.
        """
        train, test = self._split(seed)
        if len(test) == 0:
            raise ValueError(f"{len(self.labels)} rows are too few to compare methods: none is left to test")
        x, x_test = (self.inputs.iloc[rows].reset_index(drop=True) for rows in (train, test))
        y, y_test = self.labels[train], self.labels[test]
        entries: dict[str, tuple[Scores, float]] = {}

        def fitted(name: str, **settings: Any) -> tuple[TailRegressor, Scores]:
            began = time.perf_counter()
            model = self._model(seed, **settings).fit(x, y)
            rows = Seen(model, x_test)
            scores = rows.scores(y_test, COVERAGE)
            scores = replace(scores, title=TITLES.get(name, scores.title))
            entries[name] = scores, time.perf_counter() - began
            if name == TAIL:
                rare = rows.scores(y_test, COVERAGE, emphasis=1.0)
                rare = replace(rare, title="TailRegressor at emphasis 1")
                entries[TAIL_BALANCED] = rare, entries[name][1]
            return model, scores

        if PLAIN_NAME in self.methods:
            fitted(PLAIN_NAME, **PLAIN)
        trained = [name for name in self.methods if name not in (PLAIN_NAME, *UNTRAINED)]
        models = [fitted(name, **({} if name == TAIL else {"method": name})) for name in trained]
        if not models:  # any network will do: its base and its bins are what count
            models = [fitted("", method="vanilla", epochs=1)]
        model, ours = models[0]
        for name in (name for name in self.methods if name in UNTRAINED):
            began = time.perf_counter()
            if name == CONSTANT:
                baseline = score_constant(ours)
            else:
                weighted = name == BOOSTED[1]
                trees = fit_rival(model, x, y, weighted=weighted)
                if trees is None:
                    raise ValueError(f"{len(self.labels)} rows are too few to compare with boosted trees")
                baseline = score_trees(ours, trees, weighted=weighted)
            entries[name] = baseline, time.perf_counter() - began
        order = [row for name in self.methods for row in _rows(name)]
        return {name: (replace(entries[name][0], labels=ours.labels), entries[name][1]) for name in order}

    def records(self, seed: int) -> list[Record]:
        """Return a results line for each method."""
        return [self._record(name, *entry, seed) for name, entry in self.scored(seed).items()]

    def _record(self, name: str, scores: Scores, seconds: float, seed: int) -> Record:
        table = scores.by_region
        along = by_bin(scores.distribution, scores.y, scores.bins, ("mae",))
        return {
            "data": self.name,
            "method": name,
            "title": scores.title,
            "seed": seed,
            "version": __version__,
            "machine": machine(),
            "recipe": self.recipe,
            "rows": {"table": len(self.labels), "test": scores.y.size},
            "digest": self.digest(seed),
            "test_rows": {region: int(table["n"][region]) for region in table.index[1:]},
            "metrics": {
                kind: {str(region): _rounded(table.loc[region, list(names)]) for region in table.index}
                for kind, names in (("raw", OF_THE_MEAN), ("calibrated", OF_THE_SPREAD))
            },
            "along_label": {k: [float(f"{v:.5g}") for v in along[k]] for k in ("center", "n", "mae")},
            "seconds": {"fit": round(seconds, 3)},
        }


def _rounded(figures: pd.Series[Any]) -> dict[str, float | None]:
    """Return figures with six digits for JSON; None where there are no rows."""
    return {str(name): None if math.isnan(v) else float(f"{v:.6g}") for name, v in figures.items()}


def _rows(name: str) -> list[str]:
    """Return the names of the results lines of a method."""
    return [TAIL, TAIL_BALANCED] if name == TAIL else [name]


def run_contest(
    contest: Contest,
    seeds: Sequence[int],
    *,
    out: Path,
    workers: int = 1,
    report: Callable[[str], None] = lambda line: None,
) -> list[Record]:
    """Run every seed that `out` lacks, and return the lines of all seeds; `report` is told of each run."""
    names = [row for name in contest.methods for row in _rows(name)]
    done = read_results(out) if out.is_file() else []
    if done:
        report(f"resuming from {out}, which has {len(done)} finished runs")
    for record in done:
        if record["seed"] in seeds and record["digest"] != contest.digest(record["seed"]):
            raise ValueError(f"{out} was made from other rows: delete it to start over")
        if record["recipe"] != contest.recipe:
            raise ValueError(f"{out} belongs to other settings: delete it to start over")
    finished = finished_runs(done)
    missing = [s for s in seeds if any((contest.name, name, s) not in finished for name in names)]
    with claimed(out):
        for lines in _lines_by_seed(contest, missing, workers):
            for record in lines:
                key = (contest.name, record["method"], record["seed"])
                if key not in finished:
                    append_record(out, record)
                    finished[key] = record
                mae, seconds = record["metrics"]["raw"]["all"]["mae"], record["seconds"]["fit"]
                report(
                    f"seed {record['seed']}, {record['method']}: MAE {number(mae, 4)}, {seconds:.1f} seconds"
                )
    return [finished[contest.name, name, seed] for seed in seeds for name in names]


def _lines_by_seed(contest: Contest, seeds: Sequence[int], workers: int) -> Iterable[list[Record]]:
    """Yield the lines of each seed, in the order in which they end."""
    if workers == 1:  # with all threads, as `fit` has them, so that both give the same numbers
        return map(contest.records, seeds)
    jobs = (delayed(_records)(contest, seed, loaded_plugins()) for seed in seeds)
    with own_processes():
        found: Iterable[list[Record]] = Parallel(workers, return_as="generator_unordered")(jobs)
    return found


def _records(contest: Contest, seed: int, plugins: Sequence[str]) -> list[Record]:
    """Run a seed in a process of its own, on one thread."""
    torch.set_num_threads(1)
    for file in plugins:
        load_plugin(file)
    return contest.records(seed)


def own_processes() -> Any:
    """Return a context in which processes of joblib end with this one, which may be killed."""
    return parallel_config(backend="loky", initializer=_end_with, initargs=(os.getpid(),))


def _end_with(parent: int) -> None:
    """End this process, which may wait for its first job, when its parent has ended."""

    def wait() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
