"""Benchmark configurations as TOML files: data, network, recipe and methods in one place."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from tailwise.benchmark.contenders import Recipe, check_options
from tailwise.benchmark.pairs import DATA, NETWORKS
from tailwise.choices import nearest
from tailwise.training import TrainConfig

BUNDLED = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.toml"))}
"""Configurations that come with the package, by name."""
_KEYS = ("data", "methods", "seeds", "recipe", "options")
_RECIPE = ("backbone", "backbone_options", "criterion", "trials", "train")


def _check(given: Iterable[str], known: Iterable[str], where: str) -> None:
    known = list(known)
    for key in given:
        if key not in known:
            raise ValueError(f"{where}: unknown key {key!r}{nearest(key, known)}")


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Say where in a file the values stand that an error is about."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def read_configuration(path: Path) -> dict[str, Any]:
    """Read a configuration: the arguments of a `Suite`. Unknown keys are errors that name the nearest."""
    try:
        with path.open("rb") as file:
            given = tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from None
    _check(given, _KEYS, str(path))
    for key in ("data", "methods", "recipe"):
        if key not in given:
            raise ValueError(f"{path}: {key!r} is missing")
    if given["data"] not in DATA:
        raise ValueError(f"{path}: unknown data {given['data']!r}{nearest(given['data'], DATA)}")
    recipe = _recipe(given["recipe"], str(path))
    _check(given.get("options", {}), given["methods"], f"{path}, [options]")
    for name, options in given.get("options", {}).items():
        with _named(f"{path}, [options.{name}]"):
            check_options(name, options, recipe)
    return {
        "sources": (DATA[given["data"]],),
        "recipe": recipe,
        "methods": ",".join(given["methods"]),
        "options": given.get("options", {}),
        "seeds": int(given.get("seeds", 5)),
    }


def _recipe(given: Mapping[str, Any], where: str) -> Recipe:
    _check(given, _RECIPE, f"{where}, [recipe]")
    train = dict(given.get("train", {}))
    _check(train, [f.name for f in fields(TrainConfig)], f"{where}, [recipe.train]")
    if "backbone" not in given:
        raise ValueError(f"{where}, [recipe]: 'backbone' is missing")
    name, options = given["backbone"], dict(given.get("backbone_options", {}))
    if name not in NETWORKS:
        raise ValueError(f"{where}: unknown backbone {name!r}{nearest(name, NETWORKS)}")
    rest = {key: given[key] for key in ("criterion", "trials") if key in given}
    with _named(f"{where}, [recipe]"):
        return Recipe(
            train=TrainConfig(**train),
            backbone=name,
            backbone_options=options,
            network=partial(NETWORKS[name], **options),
            search={},
            **rest,
        )
