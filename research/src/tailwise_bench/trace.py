"""Where a results line comes from: commit, code, plugin, parts of the method, torch and device.

A method is compared part by part with today's registry, so a page can tell which lines are of a method that
has changed since. The code is identified by a digest that comments, docstrings and layout do not change.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

import tailwise
from tailwise.methods import available_methods, get_method
from tailwise.methods.plugins import plugin_source
from tailwise.networks.parts import Method
from tailwise_bench.recipe import SortedOptions

Row = dict[str, Any]
Change = tuple[Any, Any]
COMMIT = "TAILWISE_COMMIT"
"""Environment variable with the commit, for a copy of the source without its repository."""
EQUAL_SINCE = "8afc952"
"""Golden outputs (tests/golden) are equal since this commit: lines measured there, or before, are current."""
ESTIMATOR = "TailRegressor"
"""Name of the estimator where others have the name of a registered method."""
METHOD_CODE = (
    *("labels", "distributions", "metrics", "tables", "images", "resampling", "networks", "methods"),
    *("training", "calibration"),
)
"""Rooms of the package that a run of a registered method depends on."""
ESTIMATOR_CODE = (*METHOD_CODE, "estimator.py", "model")
OWN_CODE = ("contenders.py", "recipe.py", "choose.py", "estimators.py", "peers.py")
"""Files of this package that a run depends on."""
PACKAGES = ("catboost", "crepes", "lightgbm", "ngboost", "numpy", "pytabkit", "scikit-learn")
"""Packages whose versions are recorded for estimators, which build on them."""
_SOURCE = Path(tailwise.__file__).parent
_OWN = Path(__file__).parent


# -- code -------------------------------------------------------------------------------------


def device_name(accelerator: str = "cpu") -> str:
    """Return the name of the device that training uses with an accelerator (`TrainConfig.accelerator`)."""
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    if accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available():
        return "mps"
    return "cpu"


def _canonical(node: object) -> str:
    """Write a syntax tree without docstrings, and in the same way in every version of Python."""
    if isinstance(node, ast.AST):
        parts = [f"{name}={_canonical(of)}" for name, of in ast.iter_fields(node) if of not in (None, [])]
        return f"{type(node).__name__}({','.join(parts)})"
    if isinstance(node, list):
        return "[" + ",".join(_canonical(item) for item in node if not _is_docstring(item)) + "]"
    return repr(node)


def _is_docstring(node: object) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def digest_of_code(*files: Path) -> str:
    """Return a digest of Python files, and of those in folders; comments and docstrings do not count."""
    digest = hashlib.sha256()
    for path in files:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            name = file.relative_to(path.parent).as_posix()
            digest.update(f"{name}:{_canonical(ast.parse(file.read_bytes()))}\n".encode())
    return digest.hexdigest()[:12]


@lru_cache
def _digest_of_plugin(source: bytes) -> str:
    return hashlib.sha256(_canonical(ast.parse(source)).encode()).hexdigest()[:12]


def digest_of_plugin(method: str) -> str | None:
    """Return a digest of the plugin that registered a method, as this process has loaded it; None without."""
    source = plugin_source(method)
    return None if source is None else _digest_of_plugin(source)


def _git(*arguments: str, root: Path) -> str | None:
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def commit(root: Path = _SOURCE) -> str | None:
    """Return the commit of the source, with ``+dirty`` if a Python or TOML file differs from it.

    The environment variable `COMMIT` has precedence. Without it, and outside a repository that contains the
    source, there is none: a package installed below another project's folder does not have its commit.
    """
    given = os.environ.get(COMMIT)
    if given:
        if not re.fullmatch(r"[0-9a-f]{7,40}(\+dirty)?", given):
            raise ValueError(f"{COMMIT} must be a commit such as 212c185 or 212c185+dirty, got {given!r}")
        return given
    if _git("ls-files", "--error-unmatch", "_version.py", root=root) is None:
        return None
    found = _git("rev-parse", "HEAD", root=root)
    changes = _git("status", "--porcelain", "--", ":/*.py", ":/*.toml", root=root)
    return found and found[:12] + ("+dirty" if changes else "")


@lru_cache
def _state(paths: tuple[str, ...]) -> dict[str, str]:
    """Return commit and digest of the code, found once in a process: a run uses the code that it imported."""
    found = commit()
    code = digest_of_code(*(_SOURCE / path for path in paths), *(_OWN / name for name in OWN_CODE))
    return {**({"commit": found} if found else {}), "code": code}


# -- parts of a method ---------------------------------------------------------------------------


def row_of(name: str, options: Mapping[str, Any] | None = None) -> Row:
    """Return the parts of a registered method, or the parameters of TailRegressor, with some options.

    Nested parts have dotted names. Values that turn a part off (None, 0, false, empty) are left out.
    """
    if name == ESTIMATOR:
        from tailwise.estimator import TailRegressor

        parameters = TailRegressor(**(options or {})).get_params()
        for free in ("device", "random_state", "verbose"):
            del parameters[free]
        inner = row_of(parameters["method"], parameters["method_options"])
        row = {**parameters, **{f"method.{key}": value for key, value in inner.items()}}
    else:
        row = _parts_of(name, options).as_options()
    kept: Row = json.loads(json.dumps({key: of for key, of in row.items() if of}, default=str))
    return kept


def _parts_of(name: str, options: Mapping[str, Any] | None) -> Method:
    return get_method(name).parts.with_options(**SortedOptions.sort(options or {}).own)


def digest_of_row(row: Row) -> str:
    """Return a digest of a method's parts."""
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()[:12]


# -- lines ---------------------------------------------------------------------------------------


def trace_of(
    name: str | None, options: Mapping[str, Any] | None = None, *, accelerator: str = "cpu"
) -> dict[str, Any]:
    """Return what a results line says about its origin.

    `name` is a registered method, `ESTIMATOR`, or None for a model of another package. `options` replace its
    defaults. Call it before the run, so that the code is the one that the run uses.
    """
    by_registry = name in available_methods()
    trace: dict[str, Any] = dict(_state(METHOD_CODE if by_registry else ESTIMATOR_CODE))
    if name is not None:
        row = row_of(name, options)
        trace |= {"method": name, "parts": digest_of_row(row), "row": row}
        if plugin := digest_of_plugin(name):
            trace["plugin"] = plugin
        if options:
            trace["options"] = json.loads(json.dumps(dict(options), default=str))
    if not by_registry:
        trace["packages"] = _versions()
    return {**trace, "torch": torch.__version__, "device": device_name(accelerator)}


@lru_cache
def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def changed_parts(record: Mapping[str, Any]) -> dict[str, Change]:
    """Return the parts of a line's method that have changed since its run: each before and now.

    The code of the plugin that registered the method counts as one part.

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
    plugins = trace.get("plugin"), digest_of_plugin(name)
    found = {"plugin": plugins} if plugins[0] != plugins[1] else {}
    if before == now:
        return found
    neutral = _neutral(name, options)
    for key in [*before, *(key for key in now if key not in before)]:
        new = key not in before and neutral.get(key) == now[key]
        if before.get(key) != now.get(key) and not new:
            found[key] = before.get(key), now.get(key)
    return found


def _neutral(name: str, options: Mapping[str, Any]) -> Row:
    """Return what a line may lack: the defaults of all options, and of the parameters of TailRegressor."""
    if name == ESTIMATOR:
        from tailwise.estimator import TailRegressor

        parameters = TailRegressor(**options).get_params()
        inner = _neutral(parameters["method"], parameters["method_options"] or {})
        return {**TailRegressor().get_params(), **{f"method.{key}": value for key, value in inner.items()}}
    names = {key: of for key, of in _parts_of(name, options).as_options().items() if "." not in key}
    return {**Method().with_options(**names).as_options(), **Method().as_options()}


def describe_changes(changes: Mapping[str, Change]) -> str:
    """Say what changed.

    >>> describe_changes({"kl.weight": (0.1, 1.0), "smoothing": (None, "statistics")})
    'kl.weight 0.1, now 1.0; smoothing None, now statistics'
    """
    return "; ".join(f"{key} {before}, now {now}" for key, (before, now) in changes.items())


def unchanged(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines whose method has not changed since, as far as they tell."""
    return [record for record in records if not changed_parts(record)]
