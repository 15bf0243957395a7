"""Data sets of the benchmark: from raw tables to the arrays that every contender gets.

`prepare` splits each table as in DIR (validation and test parts balanced over label bins), caps the
training rows, fits the preprocessing on the training part only, and writes one file per data set
and seed. Runs read nothing else, so they need no raw data and no preprocessing library.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tailwise._version import __version__
from tailwise.choices import nearest
from tailwise.files import write_atomically
from tailwise.labels import LabelBins

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[Any]
MAX_ROWS = 4000
"""Training rows at most, the same cap for every method; drawn at random, so the imbalance stays."""
PER_BIN = 20
"""Validation and test rows per label bin at most."""
ABOUT = "suite.json"
_PARTS = ("x_train", "y_train", "x_valid", "y_valid", "x_test", "y_test")


@dataclass(frozen=True, eq=False)
class Problem:
    """One data set, split with one seed: inputs ready for a network, labels in their own units."""

    name: str
    seed: int
    x_train: Array  # (N, F) float32
    y_train: Array  # (N,) float64
    x_valid: Array
    y_valid: Array
    x_test: Array
    y_test: Array
    total: int
    """Rows of the whole table, before the training part was capped."""
    suite: str = ""

    @cached_property
    def bins(self) -> LabelBins:
        """Bins over the labels of the training part, by which everything is weighted and scored."""
        return LabelBins.from_labels(self.y_train)

    @cached_property
    def digest(self) -> str:
        """Short fingerprint of the arrays, which says whether two runs saw the same data."""
        whole = hashlib.sha256()
        for part in _PARTS:
            whole.update(np.ascontiguousarray(getattr(self, part)).tobytes())
        return whole.hexdigest()[:12]

    def describe(self) -> dict[str, Any]:
        """Sizes for a results line."""
        rows = {part[2:]: len(getattr(self, part)) for part in _PARTS[1::2]}
        return {
            "rows": {**rows, "table": self.total},
            "features": self.x_train.shape[1],
            "bins": len(self.bins),
            "digest": self.digest,
        }

    def save(self, folder: Path) -> Path:
        """Write as ``name-seed.npz``."""
        path = folder / f"{self.name}-{self.seed}.npz"
        arrays = {part: getattr(self, part) for part in _PARTS}

        def write(to: Path) -> None:
            with to.open("wb") as file:
                np.savez_compressed(file, total=np.int64(self.total), suite=np.str_(self.suite), **arrays)

        write_atomically(path, write)
        return path

    @classmethod
    def load(cls, folder: Path, name: str, seed: int) -> Problem:
        """Read what `save` wrote."""
        path = folder / f"{name}-{seed}.npz"
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is missing: run `prepare` with more seeds, or name another folder"
            )
        with np.load(path, allow_pickle=False) as file:
            arrays = {part: file[part] for part in _PARTS}
            return cls(name, seed, **arrays, total=int(file["total"]), suite=str(file["suite"]))


# -- sources -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """A raw table: where it comes from, its target, and columns that give the target away."""

    name: str
    target: str
    load: Callable[[], pd.DataFrame] = field(repr=False)
    leaks: tuple[str, ...] = ()


def _table(name: str) -> pd.DataFrame:
    """One of the tables of TAILWISE_DATA, as it is."""
    import pandas as pd

    named = os.environ.get("TAILWISE_DATA")
    if not named:
        raise ValueError("the suite 'tabular' reads TAILWISE_DATA/tabular: set TAILWISE_DATA to that folder")
    path = Path(named) / "tabular" / f"{name}.csv.gz"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: TAILWISE_DATA must hold tabular/{name}.csv.gz")
    return pd.read_csv(path)


def _abalone() -> pd.DataFrame:
    from tailwise.data import load_abalone

    return load_abalone()


def generated(rows: int = 3000, columns: int = 8, seed: int = 0) -> pd.DataFrame:
    """A table with a long right tail whose noise grows with the label; ``y`` is the target."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, columns))
    level = 0.8 * np.sin(x[:, 0]) + 0.5 * x[:, 1] + 0.4 * x[:, 2] * x[:, 3] + 0.3 * np.abs(x[:, 4])
    y = np.exp(level) * (1 + 0.15 * rng.normal(size=rows))
    table = pd.DataFrame(x, columns=[f"x{i}" for i in range(columns)])
    return table.assign(kind=np.where(x[:, 5] > 0.5, "a", "b"), y=y)


_TABLES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("abalone", "Rings", ()),
    ("check_times", "check_time", ()),
    ("flchain", "kappa", ("lambda", "flc.grp")),
    ("hotel_rates", "avg_price_per_room", ()),
    ("deliveries", "time_to_delivery", ()),
    ("bikeshare", "bikers", ("casual", "registered")),
    ("diamonds", "price", ()),
)


@dataclass(frozen=True)
class Suite:
    """Data sets with a budget that suits them: contenders, seeds, trials, epochs and training rows."""

    sources: tuple[Source, ...]
    methods: str = "all,peers"
    seeds: int = 5
    trials: int | None = None
    epochs: int | None = None
    max_rows: int = MAX_ROWS


SUITES = {
    "tabular": Suite(
        tuple(Source(name, target, partial(_table, name), leaks) for name, target, leaks in _TABLES)
    ),
    "quick": Suite(
        (Source("abalone", "Rings", _abalone), Source("generated", "y", generated)),
        methods="vanilla,lds,lds-fds-der,vir",
        seeds=2,
        trials=2,
        epochs=15,
        max_rows=1500,
    ),
}


def get_suite(name: str) -> Suite:
    """Find a suite by name; an unknown name is an error that names the nearest one."""
    if name not in SUITES:
        raise ValueError(f"unknown suite {name!r}{nearest(name, SUITES)}")
    return SUITES[name]


# -- preparation ---------------------------------------------------------------------------------


def make_problem(
    source: Source, seed: int, *, max_rows: int = MAX_ROWS, per_bin: int = PER_BIN, suite: str = ""
) -> Problem:
    """Split a table, cap its training part, and encode it by what the training part alone teaches.

    Rows without a label are dropped first. The bins that balance the validation and test parts are
    those of all labels, as in DIR; whatever a method learns or is weighted by comes from the
    training part.
    """
    from tailwise.data import balanced_split
    from tailwise.preprocessing import TablePreprocessor

    table = source.load()
    table = table[table[source.target].notna()].reset_index(drop=True)
    labels = table[source.target].to_numpy(np.float64)
    inputs = table.drop(columns=[source.target, *source.leaks])
    split = balanced_split(labels, per_bin=per_bin, seed=seed)
    train = split.train
    if len(train) > max_rows:
        train = np.sort(np.random.default_rng(seed).choice(train, max_rows, replace=False))
    encoder = TablePreprocessor().fit(inputs.iloc[train].reset_index(drop=True))
    parts: dict[str, Array] = {}
    for part, rows in (("train", train), ("valid", split.valid), ("test", split.test)):
        chosen = inputs.iloc[rows].reset_index(drop=True)
        parts[f"x_{part}"] = np.asarray(encoder.transform(chosen), np.float32)
        parts[f"y_{part}"] = labels[rows]
    return Problem(source.name, seed, **parts, total=len(labels), suite=suite)


def prepare(
    suite: str,
    folder: Path,
    seeds: Iterable[int],
    *,
    max_rows: int | None = None,
    per_bin: int = PER_BIN,
    report: Callable[[str], None] = lambda line: None,
) -> list[Path]:
    """Write the problems of a suite to a folder, one file per data set and seed; keep those there."""
    sources = get_suite(suite).sources
    max_rows = get_suite(suite).max_rows if max_rows is None else max_rows
    folder.mkdir(parents=True, exist_ok=True)
    about = {"suite": suite, "max_rows": max_rows, "per_bin": per_bin, "version": __version__}
    note = folder / ABOUT
    if note.is_file():
        found = json.loads(note.read_text(encoding="utf-8"))
        for name in ("suite", "max_rows", "per_bin"):
            if found.get(name) != about[name]:
                raise ValueError(
                    f"{folder} was prepared with {name} = {found.get(name)}, not {about[name]}: "
                    "name another folder"
                )
    note.write_text(json.dumps(about) + "\n", encoding="utf-8")
    written = []
    for seed in seeds:
        for source in sources:
            path = folder / f"{source.name}-{seed}.npz"
            if not path.is_file():
                problem = make_problem(source, seed, max_rows=max_rows, per_bin=per_bin, suite=suite)
                problem.save(folder)
                rows = problem.describe()["rows"]
                report(
                    f"{path.name}: {rows['train']} training rows of {rows['table']}, {len(problem.bins)} bins"
                )
            written.append(path)
    return written


def prepared_data(folder: Path, seeds: Sequence[int]) -> list[str]:
    """Names of the data sets that a folder holds for all of these seeds, in a fixed order."""
    found: dict[str, set[int]] = {}
    for path in sorted(folder.glob("*.npz")):
        name, _, seed = path.stem.rpartition("-")
        found.setdefault(name, set()).add(int(seed))
    if not found:
        raise FileNotFoundError(
            f"{folder} holds no prepared data: run `python -m tailwise.benchmark prepare`"
        )
    for name, there in found.items():
        missing = [seed for seed in seeds if seed not in there]
        if missing:
            raise FileNotFoundError(
                f"{folder} holds {name} for seeds {sorted(there)}, not {missing}: prepare more seeds"
            )
    order = [source.name for suite in SUITES.values() for source in suite.sources]
    return sorted(found, key=lambda name: (order.index(name) if name in order else len(order), name))
