"""Where a results line comes from: commit, parts of the method, torch and device.

A method is compared part by part with today's registry, so a page can tell which lines are of a method that
has changed since.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

import tailwise
from tailwise.estimator import TailRegressor
from tailwise.methods import available_methods, get_method
from tailwise.networks.parts import Method
from tailwise_bench.recipe import sorted_options

Row = dict[str, Any]
Change = tuple[Any, Any]
COMMIT = "TAILWISE_COMMIT"
"""Environment variable with the commit, for a copy of the source without its repository."""
EQUAL_SINCE = "8afc952"
"""Golden outputs (tests/golden) are equal since this commit: lines measured there, or before, are current."""
ESTIMATOR = "TailRegressor"
"""Name of the estimator where others have the name of a registered method."""
PACKAGES = ("catboost", "crepes", "lightgbm", "ngboost", "numpy", "pytabkit", "scikit-learn")
"""Packages whose versions are recorded for models that build on them."""


@lru_cache
def commit(root: Path = Path(tailwise.__file__).parent) -> str | None:
    """Return the commit of the source, with ``+dirty`` if a Python or TOML file differs from it.

    The environment variable `COMMIT` has precedence. Without it, and outside a repository that contains the
    source, there is none: a package installed below another project's folder does not have its commit.
    """
    named = os.environ.get(COMMIT)
    if named:
        if not re.fullmatch(r"[0-9a-f]{7,40}(\+dirty)?", named):
            raise ValueError(f"{COMMIT} must be a commit such as 212c185 or 212c185+dirty, got {named!r}")
        return named

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "_version.py")
        dirty = git("status", "--porcelain", "--", ":/*.py", ":/*.toml")
        return git("rev-parse", "HEAD")[:12] + ("+dirty" if dirty else "")
    except (OSError, subprocess.SubprocessError):
        return None


def trace_of(
    name: str | None, options: Mapping[str, Any] | None = None, *, accelerator: str = "cpu"
) -> dict[str, Any]:
    """Return what a results line says about its origin.

    `name` is a registered method, `ESTIMATOR`, or None for a model of another package. `options` replace its
    defaults. Call it before the run, so that the commit is that of the code in use.
    """
    trace: dict[str, Any] = {} if commit() is None else {"commit": commit()}
    if name is not None:
        trace |= {"method": name, "row": row_of(name, options)}
        if options:
            trace["options"] = json.loads(json.dumps(dict(options), default=str))
    if name is None or name == ESTIMATOR:
        trace["packages"] = _versions()
    return {**trace, "torch": torch.__version__, "device": device_name(accelerator)}


def _versions() -> dict[str, str]:
    versions = {}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):  # pytabkit is optional
            versions[package] = importlib.metadata.version(package)
    return versions


def device_name(accelerator: str) -> str:
    """Return the name of the device that training uses with an accelerator (`TrainConfig.accelerator`)."""
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    if accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available():
        return "mps"
    return "cpu"


# -- parts of a method ---------------------------------------------------------------------------


def row_of(name: str, options: Mapping[str, Any] | None = None) -> Row:
    """Return the parts of a registered method, or the parameters of TailRegressor, with some options.

    Nested parts have dotted names. Values that turn a part off (None, 0, false, empty) are left out.
    """
    if name == ESTIMATOR:
        row = TailRegressor(**(options or {})).get_params()
        for free in ("device", "random_state", "verbose"):
            del row[free]
        inner = row_of(row["method"], row["method_options"])
        row |= {f"method.{key}": value for key, value in inner.items()}
    else:
        row = _parts(name, options).as_options()
    kept: Row = json.loads(json.dumps({key: of for key, of in row.items() if of}, default=str))
    return kept


def _parts(name: str, options: Mapping[str, Any] | None) -> Method:
    return get_method(name).parts.with_options(**sorted_options(options or {})[2])


def changed_parts(record: Mapping[str, Any]) -> dict[str, Change]:
    """Return the parts of a line's method that have changed since its run: each before and now.

    A part that did not exist then counts as unchanged while the method has its default. Lines without a
    trace, and of methods that are not registered, have no known changes.
    """
    trace = record.get("trace", {})
    name = trace.get("method")
    if name != ESTIMATOR and name not in available_methods():
        return {}
    before, options = trace["row"], trace.get("options", {})
    try:
        now = row_of(name, options)
    except (TypeError, ValueError) as error:  # an option that no longer exists
        return {"options": (options, str(error))}
    if before == now:
        return {}
    neutral = _neutral(name, options)
    added = [key for key in now if key not in before and neutral.get(key) != now[key]]
    return {
        key: (before.get(key), now.get(key)) for key in [*before, *added] if before.get(key) != now.get(key)
    }


def _neutral(name: str, options: Mapping[str, Any]) -> Row:
    """Return what a line may lack: the defaults of all options, and of the parameters of TailRegressor."""
    if name == ESTIMATOR:
        parameters = TailRegressor(**options).get_params()
        inner = _neutral(parameters["method"], parameters["method_options"] or {})
        return {**TailRegressor().get_params(), **{f"method.{key}": value for key, value in inner.items()}}
    names = {key: of for key, of in _parts(name, options).as_options().items() if "." not in key}
    return {**Method().with_options(**names).as_options(), **Method().as_options()}
