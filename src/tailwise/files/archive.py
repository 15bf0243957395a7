"""A saved model as a file: a zip of uncompressed members, all checked before they are read.

Checksums find damage. Only a signature finds intent: with a secret `key` the zip's comment holds the HMAC of
the manifest, and the manifest holds the checksums of all other members.

`manifest.json` says what the model is and holds the checksum of every other member;
`weights.safetensors` holds its numbers; `preprocessing.skops` is there only for tables with text,
categories or dates; `base.json` holds the base regressors, if there are any.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from tailwise._version import __version__
from tailwise.data.writing import write_atomically

FORMAT = "tailwise model"
VERSION = 2
"""Increase when old readers would misread new files, or when old files become unreadable."""
MANIFEST, WEIGHTS = "manifest.json", "weights.safetensors"
PREPROCESSING, BASE = "preprocessing.skops", "base.json"
LIMITS = {MANIFEST: 1 << 27, WEIGHTS: 1 << 33, PREPROCESSING: 1 << 29, BASE: 1 << 29}
"""Largest size of each member in bytes; for the skops member, after unpacking."""
MAX_JSON = {MANIFEST: 1 << 22, BASE: 1 << 24}
"""Most values of a JSON member. Each takes up to 70 bytes of memory, however short its text."""
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
    description: Mapping[str, Any],
    members: Mapping[str, bytes],
    *,
    key: Key | None = None,
    check: Callable[[dict[str, Any]], None] | None = None,
) -> None:
    """Write members and a manifest that describes them to one file, atomically; with `key`, signed.

    `check` sees the manifest as it will be read; what it refuses is not written.
    """
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "tailwise": __version__,
        "members": {name: hashlib.sha256(data).hexdigest() for name, data in members.items()},
        **description,
    }
    text = json.dumps(_plain(manifest, "the model"), allow_nan=False).encode()
    if check is not None:
        try:
            check(json.loads(text, object_hook=_from_plain))
        except ValueError as error:
            raise ValueError(f"the model cannot be saved: {error}") from None
    comment = b"" if key is None else _signature(text, key)
    write_atomically(path, lambda part: _write(part, {MANIFEST: text, **members}, comment))


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


def _plain(value: Any, where: str) -> Any:
    """Return a value as JSON has it, with special forms for tuples and numbers that are not finite."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, np.generic):
        return _plain(value.item(), where)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if is_dataclass(value) and not isinstance(value, type):
        return _plain({f.name: getattr(value, f.name) for f in fields(value)}, where)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, f"{key!r} of {where}") for key, item in value.items()}
    if isinstance(value, tuple):
        return {"$tuple": [_plain(item, where) for item in value]}
    if isinstance(value, (np.ndarray, Tensor)):
        return _plain(value.tolist(), where)
    if isinstance(value, (list, range)):
        return [_plain(item, where) for item in value]
    raise ValueError(f"{where} is a {type(value).__name__}, which cannot be written to a file: {value!r:.80}")


def _from_plain(value: dict[str, Any]) -> Any:
    if set(value) == {"$float"}:
        return float(value["$float"])
    if set(value) == {"$tuple"}:
        return tuple(value["$tuple"])
    return value


# -- read ------------------------------------------------------------------------------------------


def unpack(path: Path, key: Key | None = None) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the manifest and the other members of a file, all checked.

    With `key`, a file that was not signed with it is an error. A file that is missing, cut short, damaged,
    changed, of another kind or of a later version is an `OSError` or a `ValueError` that says so.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a saved model")
    if path.exists() and not path.is_file():  # opening a pipe would wait for a writer
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
                return manifest, _read_members(archive, manifest, path)
        except _Refused as refused:
            raise ValueError(f"{path} {refused}") from None
        except Exception as error:  # zipfile and json raise many kinds for damaged bytes
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
    manifest = json.loads(text.decode(), object_hook=_from_plain)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise _Refused("is not a saved tailwise model")
    version = manifest.get("version")
    if type(version) is not int or version < 1:
        raise _Refused(f"is damaged: format version {version!r}")
    if version > VERSION:
        raise _Refused(
            f"has format version {version} (tailwise {manifest.get('tailwise')}), and this is tailwise "
            f"{__version__}, which reads up to {VERSION}: pip install --upgrade tailwise"
        )
    return manifest


def _read_members(archive: zipfile.ZipFile, manifest: Mapping[str, Any], path: Path) -> dict[str, bytes]:
    sums = section(manifest, "members", path)
    known = set(LIMITS)
    names = archive.namelist()
    strange = sorted(set(names) - known)
    if strange:
        raise _Refused(f"holds {strange[0]!r:.80}, which is not part of a saved model")
    if len(set(names)) < len(names) or set(names) != {MANIFEST, *sums} or WEIGHTS not in names:
        raise _Refused(f"is damaged: its members are {', '.join(names)}")
    members = {}
    for name in sums:
        members[name] = _member(archive, name)
        if hashlib.sha256(members[name]).hexdigest() != sums[name]:
            raise _Refused(f"was changed or damaged: {name} does not match its checksum")
    return members


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    info = archive.getinfo(name)
    # Without compression no member can be larger than the file itself.
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        raise _Refused(f"is not a saved tailwise model: {name} is compressed")
    if info.file_size > LIMITS[name]:
        raise _Refused(f"is refused: {name} has {info.file_size} bytes, at most {LIMITS[name]} are read")
    data = archive.read(info)
    if name in MAX_JSON and json_values(data) > MAX_JSON[name]:
        raise _Refused(f"is refused: {name} has more than {MAX_JSON[name]} values")
    return data


def json_values(data: bytes) -> int:
    """Return a number of values that JSON text cannot exceed, without reading it."""
    return data.count(b",") + data.count(b"[") + data.count(b"{") + 1


def check_header(data: bytes) -> None:
    """Raise an error if the table of tensors of a safetensors file is too large or leaves the file."""
    size = int.from_bytes(data[:8], "little")
    if not 2 <= size <= min(MAX_HEADER, len(data) - 8):
        raise ValueError(f"{WEIGHTS} has a header of {size} bytes, at most {MAX_HEADER} are read")
    if json_values(data[8 : 8 + size]) > MAX_HEADER // 16:
        raise ValueError(f"{WEIGHTS} names too many tensors")


def section(manifest: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    """Return a part of a manifest; a missing part is an error."""
    found = manifest.get(key)
    if not isinstance(found, Mapping):
        raise ValueError(f"{path} is damaged: {MANIFEST} has no {key}")
    return found


def one_line(error: Exception) -> str:
    """Return an error as one line of bounded length, with its type unless it is a ValueError."""
    text = " ".join(str(error).split())
    text = text if len(text) <= 300 else f"{text[:300]}..."
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}"
