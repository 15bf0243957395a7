"""Methods of one's own: files that register them, run in this process and in every worker."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

_loaded: list[str] = []


def load_plugin(file: str | Path) -> None:
    """Run a Python file that registers methods, so that they can be compared by name; once per process.

    Workers that are started later run it too.
    """
    path = Path(file).resolve()
    if str(path) in _loaded:
        return
    if not path.is_file():
        raise ValueError(f"{file} does not exist: a plugin is a Python file that registers a method")
    name = f"tailwise_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file} is no Python file: a plugin is one that registers a method")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # its classes can be pickled, as those of any module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ValueError(f"{file} cannot be used as a plugin: {type(error).__name__}: {error}") from error
    _loaded.append(str(path))


def load_plugins(files: Iterable[str]) -> None:
    """Run several, as a worker does."""
    for file in files:
        load_plugin(file)


def loaded_plugins() -> tuple[str, ...]:
    """Paths of the plugins that this process has run."""
    return tuple(_loaded)
