"""Tables of the user's own in a suite: CSV and Parquet files that a TOML file lists."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tailwise.networks.backbones import BACKBONES, Backbone, make_backbone
from tailwise_bench.data.problems import Problem, Source
from tailwise_bench.data.recipe import DataKind, Recipe

if TYPE_CHECKING:
    import pandas as pd

TABLE_KEYS: Mapping[str, Any] = {"file": str, "target": str, "drop": tuple[str, ...]}
"""Keys of a table in a suite's file, with their types."""


def _read(path: Path, target: str, drop: tuple[str, ...]) -> pd.DataFrame:
    from tailwise.tables.columns import split_targets
    from tailwise.tables.read import read_table

    inputs, labels, _ = split_targets(read_table(path), [target], str(path), drop)
    return inputs.assign(**{target: labels[target]})


def own_table(name: str, given: Mapping[str, Any], folder: Path) -> Source:
    """Return a table of a suite's file; its path is relative to the folder of that file."""
    if Path(name).name != name:
        raise ValueError(f"files are named after the table, and {name!r} cannot be a file's name: rename it")
    for key in ("file", "target"):
        if key not in given:
            raise ValueError(f"{key!r} is missing")
    path, target, drop = (folder / given["file"]).resolve(), given["target"], tuple(given.get("drop", ()))
    content = path.read_bytes() if path.is_file() else b""  # a missing file is an error when it is read
    origin = f"{hashlib.sha256(content).hexdigest()[:12]}, target {target!r}, without {list(drop)}"
    return Source(name, target, partial(_read, path, target, drop), origin=origin)


def _network(problem: Problem, *, name: str, **options: Any) -> Backbone:
    rows = torch.from_numpy(problem.x_train)
    return make_backbone(name, rows.shape[1], rows=rows, **options)


def _network_options(name: str) -> dict[str, Any]:
    parameters = inspect.signature(BACKBONES[name], eval_str=True).parameters.values()
    return {p.name: p.annotation for p in parameters if p.name not in ("in_dim", "rows", "edges")}


def _decoder(problem: Problem, latent_dim: int) -> nn.Module:
    return nn.Linear(latent_dim, problem.x_train.shape[1])


NETWORKS: dict[str, Callable[..., Backbone]] = {name: partial(_network, name=name) for name in BACKBONES}
OWN_TABLES = DataKind({}, NETWORKS, _network_options, _decoder, base=Recipe())
"""Tables that a suite's file lists."""
