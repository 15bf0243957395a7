"""Checkpoints of training: one file, written whole, and read only if its settings agree."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tailwise.data.writing import write_atomically

CHECKPOINT_VERSION = 1


def write_checkpoint(path: Path, settings: Mapping[str, str], state: Mapping[str, Any]) -> None:
    """Write the state of a run together with its settings; an existing file is replaced atomically."""
    content = {"version": CHECKPOINT_VERSION, "settings": dict(settings), **state}
    write_atomically(path, lambda part: torch.save(content, part))


def read_checkpoint(path: Path, settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the state in a checkpoint; one of another version or with other settings is an error."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        version, known = state["version"], state.get("settings", {})
    except Exception as error:
        raise ValueError(
            f"{path} is not a tailwise checkpoint ({type(error).__name__}); delete it or name another file"
        ) from error
    if version != CHECKPOINT_VERSION:
        raise ValueError(
            f"{path} has checkpoint version {version}, not {CHECKPOINT_VERSION}; "
            "delete it or name another file"
        )
    for name, value in settings.items():
        found = known.get(name, "unknown")
        if found != value:
            raise ValueError(
                f"{path} was trained with {name} = {shortened(found)}, not {shortened(value)}: "
                "resume with the same data and settings, or delete it to start over"
            )
    return state


def shortened(text: str, limit: int = 60) -> str:
    """Cut a long text to `limit` characters.

    >>> shortened("abcdef", 3)
    'abc...'
    """
    return text if len(text) <= limit else f"{text[:limit]}..."
