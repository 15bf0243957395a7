"""Suites as TOML files: data, network, recipe and methods in one place."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tailwise.lookup import nearest
from tailwise.training.loop import TrainConfig
from tailwise_bench.data.faces import FACES
from tailwise_bench.data.nyu import DEPTH_MAPS
from tailwise_bench.data.own_tables import OWN_TABLES, TABLE_KEYS, own_table
from tailwise_bench.data.problems import MAX_ROWS, DataSet
from tailwise_bench.data.recipe import DataKind, Recipe, check_options
from tailwise_bench.data.stsb import PAIRS

BUNDLED = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.toml"))}
"""TOML files that come with the package, by name."""
KINDS: tuple[DataKind, ...] = (PAIRS, FACES, DEPTH_MAPS)
"""Kinds of data that a file can name."""
_KEYS: Mapping[str, Any] = {
    "data": str, "tables": dict, "methods": tuple[str, ...], "seeds": int, "max_rows": int, "recipe": dict,
    "options": dict,
}  # fmt: skip
"""Keys of a file, with their types."""
_RECIPE_KEYS: Mapping[str, Any] = {
    "backbone": str, "backbone_options": dict, "criterion": str, "trials": int, "train": dict, "augment": str,
    "weights": str,
}  # fmt: skip


def _check(given: Mapping[str, Any], known: Mapping[str, Any], where: str) -> None:
    """Raise an error for an unknown key or a value of the wrong type."""
    for key, value in given.items():
        if key not in known:
            raise ValueError(f"{where}: unknown key {key!r}{nearest(key, known)}")
        if not _is_a(value, known[key]):
            raise ValueError(f"{where}: {key} must be {_in_words(known[key])}, got {value!r}")


def _is_a(value: object, kind: Any) -> bool:
    """Return whether a value of a TOML file has the type of an annotation."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_is_a(value, arg) for arg in args)
    if origin is Literal:  # the class that takes the value checks which strings are allowed
        return isinstance(value, str)
    if origin in (tuple, Sequence):
        return isinstance(value, list) and all(_is_a(part, args[0]) for part in value)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", dict: "a table"}


def _in_words(kind: Any) -> str:
    args = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        return _in_words(args[0])
    if get_origin(kind) in (tuple, Sequence):
        return f"a list, each {_in_words(args[0])}"
    return _WORDS.get(kind, "a string")


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Prefix errors with the place in the file."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def read_configuration(path: Path) -> dict[str, Any]:
    """Return the arguments of a `Suite` from a TOML file; an unknown key is an error."""
    if not path.is_file():
        raise ValueError(f"{path} does not exist: name another TOML file, or one of {', '.join(BUNDLED)}")
    try:
        with path.open("rb") as file:
            given = tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from None
    _check(given, _KEYS, str(path))
    if "methods" not in given:
        raise ValueError(f"{path}: 'methods' is missing")
    if not given["methods"]:
        raise ValueError(f"{path}: `methods` is empty: list at least one")
    limits = {name: given.get(name, default) for name, default in (("seeds", 5), ("max_rows", MAX_ROWS))}
    for name, value in limits.items():
        if value < 1:
            raise ValueError(f"{path}: {name} must be at least 1, got {value}")
    kind, sources = _data(given, path)
    options = given.get("options", {})
    recipe = _recipe(given.get("recipe", {}), kind, str(path))
    _check(options, dict.fromkeys(given["methods"], dict), f"{path}, [options]")
    for name, own in options.items():
        with _named(f"{path}, [options.{name}]"):
            check_options(name, own, recipe)
    return {
        "sources": sources,
        "recipe": recipe,
        "methods": ",".join(given["methods"]),
        "options": options,
        **limits,
    }


def _data(given: Mapping[str, Any], path: Path) -> tuple[DataKind, tuple[DataSet, ...]]:
    """Return the kind of data and the data sets: one by its name, or tables that the file lists."""
    tables = given.get("tables", {})
    if ("data" in given) == bool(tables):
        raise ValueError(f"{path}: give `data`, or tables such as [tables.prices], and not both")
    if tables:
        _check(tables, dict.fromkeys(tables, dict), f"{path}, [tables]")
        sources = []
        for name, own in tables.items():
            where = f"{path}, [tables.{name}]"
            _check(own, TABLE_KEYS, where)
            with _named(where):
                sources.append(own_table(name, own, path.parent))
        return OWN_TABLES, tuple(sources)
    kinds = {name: kind for kind in KINDS for name in kind.data}
    if given["data"] not in kinds:
        raise ValueError(f"{path}: unknown data {given['data']!r}{nearest(given['data'], kinds)}")
    kind = kinds[given["data"]]
    return kind, (kind.data[given["data"]],)


def _recipe(given: Mapping[str, Any], kind: DataKind, where: str) -> Recipe:
    _check(given, _RECIPE_KEYS, f"{where}, [recipe]")
    train: dict[str, Any] = dict(given.get("train", {}))
    _check(train, get_type_hints(TrainConfig), f"{where}, [recipe.train]")
    if "milestones" in train:
        train["milestones"] = tuple(train["milestones"])
    name, options = given.get("backbone", kind.base.backbone), dict(given.get("backbone_options", {}))
    if "backbone" not in given and name not in kind.networks:
        raise ValueError(f"{where}, [recipe]: 'backbone' is missing")
    if name not in kind.networks:
        raise ValueError(f"{where}: unknown backbone {name!r}{nearest(name, kind.networks)}")
    _check(options, kind.network_options(name), f"{where}, [recipe.backbone_options]")
    augment = given.get("augment")
    if augment is not None and augment not in kind.augmentations:
        hint = nearest(augment, kind.augmentations) if kind.augmentations else "; this data has none"
        raise ValueError(f"{where}: unknown augmentation {augment!r}{hint}")
    rest = {key: given[key] for key in ("criterion", "trials", "weights") if key in given}
    with _named(f"{where}, [recipe]"):
        return Recipe(
            train=replace(kind.base.train, **train),
            backbone=name,
            backbone_options=options,
            network=partial(kind.networks[name], **options),
            decoder=kind.decoder,
            augment=augment,
            augmentation=None if augment is None else kind.augmentations[augment],
            search={name: of for name, of in kind.base.search.items() if name not in train},
            **rest,
        )
