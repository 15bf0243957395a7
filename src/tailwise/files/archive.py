"""A saved model as a file: a zip of two uncompressed members, both checked before they are read.

`manifest.json` says what the model is, and holds the checksum of `weights.safetensors`, which holds its
numbers. Checksums find damage. Only a signature finds intent: with a secret `key` the zip's comment holds the
HMAC of the manifest.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load as read_tensors
from safetensors.torch import save as tensors_to_bytes

from tailwise._version import __version__
from tailwise.files.codec import Arrays, from_plain
from tailwise.writing import write_atomically

FORMAT = "tailwise model"
VERSION = 3
"""Increase when files change; a file of another version is refused."""
MANIFEST, WEIGHTS = "manifest.json", "weights.safetensors"
LIMITS = {MANIFEST: 1 << 27, WEIGHTS: 1 << 33}
"""Largest size of each member in bytes."""
MAX_JSON = 1 << 20
"""Most values of the manifest. Each takes up to 70 bytes of memory, however short its text."""
MAX_HEADER = 1 << 24
"""Largest size of the table of tensors in bytes."""
MIN_KEY = 16
"""Fewest bytes of a key to sign with."""
Key = bytes | str | Path
"""A secret to sign with: the bytes, or the name of a file that holds them."""
_SIGNED = b"hmac-sha256:"

_MAGIC = b"PK\x03\x04"
EPOCH = (1980, 1, 1, 0, 0, 0)
"""A fixed date for all members: the same model gives the same file."""


# -- write -----------------------------------------------------------------------------------------


def pack(
    path: Path,
    model: Mapping[str, Any],
    arrays: Arrays,
    *,
    key: Key | None = None,
    check: Callable[[Any, Arrays], object] | None = None,
) -> None:
    """Write a model, as JSON has it, and its arrays to one file, atomically; with `key`, signed.

    `check` sees both as they will be read; what it refuses is not written.
    """
    weights = tensors_to_bytes(arrays)
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "tailwise": __version__,
        "sha256": hashlib.sha256(weights).hexdigest(),
        "model": model,
    }
    text = json.dumps(manifest, allow_nan=False).encode()
    if json_values(text) > MAX_JSON:
        raise ValueError(f"the model cannot be saved: {MANIFEST} would have more than {MAX_JSON} values")
    if check is not None:
        try:
            check(json.loads(text, object_hook=from_plain)["model"], dict(arrays))
        except ValueError as error:
            raise ValueError(f"the model cannot be saved: {error}") from None
    comment = b"" if key is None else _signature(text, key)
    write_atomically(path, lambda part: _write(part, {MANIFEST: text, WEIGHTS: weights}, comment))


def _signature(manifest: bytes, key: Key) -> bytes:
    return _SIGNED + hmac.new(key_bytes(key), manifest, hashlib.sha256).hexdigest().encode()


def key_bytes(key: Key) -> bytes:
    """Return the bytes of a key, or of the file that holds it; a short one is an error."""
    if isinstance(key, bytes):
        secret, name = key, "the key"
    else:
        with Path(key).open("rb") as file:
            secret, name = file.read(1 << 20).strip(), str(key)
    if len(secret) < MIN_KEY:
        raise ValueError(
            f"{name} has {len(secret)} bytes, and a key needs at least {MIN_KEY}: make one with "
            "`openssl rand -hex 32`"
        )
    return secret


def _write(path: Path, members: Mapping[str, bytes], comment: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.comment = comment
        for name, data in members.items():
            if len(data) > LIMITS[name]:
                raise ValueError(f"{name} would take {len(data)} bytes, more than can be loaded again")
            archive.writestr(zipfile.ZipInfo(name, EPOCH), data)


# -- read ------------------------------------------------------------------------------------------


def unpack(path: Path, key: Key | None = None) -> tuple[Any, Arrays]:
    """Return the model and the arrays of a file, as `pack` took them.

    With `key`, a file that was not signed with it is an error. A file that is missing, cut short, damaged,
    changed, of another kind or of another version is an `OSError` or a `ValueError` that says so.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a saved model")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is a pipe or a device, not a saved model")
    secret = None if key is None else key_bytes(key)
    with path.open("rb") as file:
        start = file.read(len(_MAGIC))
        if not start:
            raise ValueError(f"{path} is empty")
        if start != _MAGIC:
            raise ValueError(f"{path} is not a saved tailwise model")
        try:
            with zipfile.ZipFile(file) as archive:
                manifest = _read_manifest(archive, secret)
                return manifest["model"], _read_arrays(archive, manifest["sha256"])
        except _Refused as refused:
            raise ValueError(f"{path} {refused}") from None
        except Exception as error:  # zipfile, json and safetensors raise many kinds for damaged bytes
            raise ValueError(f"{path} is damaged or cut short: {one_line(error)}") from error


class _Refused(Exception):
    """What is wrong with a file, to be read after its name."""


def _read_manifest(archive: zipfile.ZipFile, key: bytes | None) -> dict[str, Any]:
    if MANIFEST not in archive.namelist():
        raise _Refused(f"is not a saved tailwise model: it has no {MANIFEST}")
    text = _member(archive, MANIFEST)
    if key is not None:
        if not archive.comment.startswith(_SIGNED):
            raise _Refused("is not signed: load it without a key only if you trust where it comes from")
        if not hmac.compare_digest(archive.comment, _signature(text, key)):
            raise _Refused("was signed with another key, or changed after it was signed")
    manifest = json.loads(text.decode(), object_hook=from_plain)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise _Refused("is not a saved tailwise model")
    version, writer = manifest.get("version"), manifest.get("tailwise")
    if version != VERSION:
        raise _Refused(
            f"was written by tailwise {writer!s:.20} in format {version!r:.20}, and tailwise {__version__} "
            f"reads format {VERSION}: install that version, or fit the model again"
        )
    if set(manifest) != {"format", "version", "tailwise", "sha256", "model"}:
        raise _Refused(f"is damaged: {MANIFEST} has the fields {', '.join(manifest)!s:.200}")
    return manifest


def _read_arrays(archive: zipfile.ZipFile, checksum: Any) -> Arrays:
    names = archive.namelist()
    if sorted(names) != sorted(LIMITS):
        raise _Refused(f"is damaged: its members are {', '.join(names)!s:.200}")
    data = _member(archive, WEIGHTS)
    if hashlib.sha256(data).hexdigest() != checksum:
        raise _Refused(f"was changed or damaged: {WEIGHTS} does not match its checksum")
    size = int.from_bytes(data[:8], "little")
    if not 2 <= size <= min(MAX_HEADER, len(data) - 8):
        raise _Refused(f"is refused: {WEIGHTS} has a header of {size} bytes, at most {MAX_HEADER} are read")
    if json_values(data[8 : 8 + size]) > MAX_HEADER // 16:
        raise _Refused(f"is refused: {WEIGHTS} names too many tensors")
    return dict(read_tensors(data))


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    info = archive.getinfo(name)
    # Without compression no member can be larger than the file itself.
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        raise _Refused(f"is not a saved tailwise model: {name} is compressed")
    if info.file_size > LIMITS[name]:
        raise _Refused(f"is refused: {name} has {info.file_size} bytes, at most {LIMITS[name]} are read")
    data = archive.read(info)
    if name == MANIFEST and json_values(data) > MAX_JSON:
        raise _Refused(f"is refused: {name} has more than {MAX_JSON} values")
    return data


def json_values(data: bytes) -> int:
    """Return a number of values that JSON text cannot exceed, without reading it."""
    return data.count(b",") + data.count(b"[") + data.count(b"{") + 1


def one_line(error: Exception) -> str:
    """Return an error as one line of bounded length, with its type unless it is a ValueError."""
    text = " ".join(str(error).split())
    text = text if len(text) <= 300 else f"{text[:300]}..."
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}"
