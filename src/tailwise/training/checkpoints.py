"""Checkpoints of training: one file, written whole, and read only if its settings agree."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from tailwise.networks.network import Network
from tailwise.networks.ranks import from_first, rank_and_ranks
from tailwise.training.batches import Placed, Sharded, TensorData
from tailwise.training.config import TrainConfig
from tailwise.writing import write_atomically

CHECKPOINT_VERSION = 2


def write_checkpoint(path: Path, settings: Mapping[str, str], state: Mapping[str, Any]) -> None:
    """Write the state of a run together with its settings; an existing file is replaced atomically."""
    content = io.BytesIO()  # to a file on a full disk, torch would raise an error without its name
    torch.save({"version": CHECKPOINT_VERSION, "settings": dict(settings), **state}, content)
    write_atomically(path, lambda part: part.write_bytes(content.getbuffer()))


def read_checkpoint(path: Path, settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the state in a checkpoint; one of another version or with other settings is an error."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        version, kept = state["version"], state["settings"]
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
        before = kept.get(name, "unknown")
        if before != value:
            raise ValueError(
                f"{path} was trained with {name} = {shortened(before)}, not {shortened(value)}: "
                "resume with the same data and settings, or delete it to start over"
            )
    return state


def read_everywhere(path: Path, settings: Mapping[str, str]) -> dict[str, Any]:
    """Read a checkpoint on rank 0, where it was written, and pass it or the error on to all ranks."""
    state: dict[str, Any] | ValueError = {}
    if rank_and_ranks()[0] == 0:
        try:
            state = read_checkpoint(path, settings)
        except ValueError as error:
            state = error
    state = from_first(state)
    if isinstance(state, ValueError):
        raise state
    return state


def resumed_settings(config: TrainConfig, model: Network, train: Placed, valid: Any) -> dict[str, str]:
    """Return the settings that must not change when a run is resumed."""
    free = {"epochs", "patience", "accelerator", "graphs"}
    bins, method = model.bins, model.method
    if config.schedule == "cosine" or method.schedule is not None:
        free.remove("epochs")
    return {
        **{f.name: repr(getattr(config, f.name)) for f in fields(config) if f.name not in free},
        **{f"method {name}": repr(value) for name, value in method.as_options().items()},
        **_fingerprints({"training data": train, "validation data": valid}),
        "bins": f"{len(bins)} from {bins.edges[0]:.9g} to {bins.edges[-1]:.9g}",
        "bin edges": " ".join(f"{edge:.9g}" for edge in bins.edges),
        "training labels per bin": " ".join(map(str, bins.counts)),
    }


def _fingerprints(sources: Mapping[str, Any]) -> dict[str, str]:
    """Return a fingerprint of the rows of each source; loaders are not checked."""
    fingerprints = {}
    for name, data in sources.items():
        if isinstance(data, TensorData | Sharded):
            rows = len(data) if isinstance(data, TensorData) else data.row_count
            fingerprints[name] = f"{rows} rows with the fingerprint {data.fingerprint()}"
    return fingerprints


def shortened(text: str, limit: int = 60) -> str:
    """Cut a long text to `limit` characters.

    >>> shortened("abcdef", 3)
    'abc...'
    """
    return text if len(text) <= limit else f"{text[:limit]}..."
