"""Plugins: Python files, outside the package, that register methods."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import NamedTuple

from tailwise.methods.registry import available_methods


class _Plugin(NamedTuple):
    source: bytes
    methods: frozenset[str]


_loaded: dict[str, _Plugin] = {}


def load_plugin(file: str | Path) -> None:
    """Run a Python file that registers methods, so that they can be named and their models loaded.

    It runs once in this process, and once in every worker that a benchmark starts later.
    """
    path = Path(file).resolve()
    if str(path) in _loaded:
        return
    if not path.is_file():
        raise ValueError(f"{file} does not exist: a plugin is a Python file that registers methods")
    source, before = path.read_bytes(), available_methods()
    name = f"tailwise_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file} is not a Python file: a plugin is a .py file that registers methods")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # so that its classes can be pickled
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ValueError(f"{file} cannot be used as a plugin: {type(error).__name__}: {error}") from error
    _loaded[str(path)] = _Plugin(source, frozenset(available_methods()) - frozenset(before))


def loaded_plugins() -> tuple[str, ...]:
    """Return the paths of the plugins that this process has run."""
    return tuple(_loaded)


def plugin_source(method: str) -> bytes | None:
    """Return the Python file that registered a method; None for a method of the package."""
    return next((plugin.source for plugin in _loaded.values() if method in plugin.methods), None)
