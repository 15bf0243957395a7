"""A saved model as a file: four lines, and the numbers as safetensors.

1. ``tailwise model``, the format's version, and the version of tailwise that wrote it
2. the SHA-256 of what follows these three lines, which finds damage
3. the HMAC of the same with a secret `key`, which finds intent; ``-`` without one
4. the model as JSON

Everything is checked before it is read. The same model gives the same bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load as read_tensors
from safetensors.torch import save as tensors_to_bytes

from tailwise._version import __version__
from tailwise.files.codec import Arrays, from_plain
from tailwise.writing import write_atomically

FORMAT = b"tailwise model"
VERSION = 5
"""Increase when files change; a file of another version is refused."""
MAX_JSON = 1 << 20
"""Most values of the model's JSON, and of the table of tensors. Each takes up to 70 bytes of memory."""
MIN_KEY = 16
"""Fewest bytes of a key to sign with."""
Key = bytes | str | Path
"""A secret to sign with: the bytes, or the name of a file that holds them."""


def pack(
    path: Path,
    model: Mapping[str, Any],
    arrays: Arrays,
    *,
    key: Key | None = None,
    check: Callable[[Any, Arrays], object] = lambda model, arrays: None,
) -> None:
    """Write a model, as JSON has it, and its arrays to one file, atomically; with `key`, signed.

    `check` sees both as they will be read; what it refuses is not written.
    """
    text = json.dumps(model, allow_nan=False).encode()
    try:
        check(_parsed(text), dict(arrays))
    except ValueError as error:
        raise ValueError(f"the model cannot be saved: {error}") from None
    content = text + b"\n" + tensors_to_bytes(arrays)
    signature = b"-" if key is None else _signature(content, key_bytes(key))
    first = b"%s %d %s" % (FORMAT, VERSION, __version__.encode())
    lines = b"\n".join([first, hashlib.sha256(content).hexdigest().encode(), signature, content])
    write_atomically(path, lambda part: part.write_bytes(lines))


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
        if file.read(len(FORMAT)) != FORMAT:
            raise ValueError(f"{path} is not a saved tailwise model")
        lines = file.read().split(b"\n", 3)
    version, _, writer = lines[0].strip().partition(b" ")
    if version != b"%d" % VERSION:
        raise ValueError(
            f"{path} was written by tailwise {writer.decode(errors='replace')!s:.20} in format "
            f"{version.decode(errors='replace')!s:.20}, and tailwise {__version__} reads format {VERSION}: "
            "install that version, or fit the model again"
        )
    _, checksum, signature, content = [*lines, b"", b"", b""][:4]
    if hashlib.sha256(content).hexdigest().encode() != checksum:
        raise ValueError(f"{path} was changed, damaged or cut short: it does not match its checksum")
    if secret is not None and signature == b"-":
        raise ValueError(f"{path} is not signed: load it without a key only if you trust where it comes from")
    if secret is not None and not hmac.compare_digest(signature, _signature(content, secret)):
        raise ValueError(f"{path} was signed with another key, or changed after it was signed")
    try:
        text, _, weights = content.partition(b"\n")
        header = weights[8 : 8 + int.from_bytes(weights[:8], "little")]
        if json_values(header) > MAX_JSON:
            raise ValueError("it names too many tensors")
        return _parsed(text), dict(read_tensors(weights))
    except Exception as error:  # json and safetensors raise many kinds for forged bytes
        raise ValueError(f"{path} cannot be loaded: {one_line(error)}") from error


def _parsed(text: bytes) -> Any:
    if json_values(text) > MAX_JSON:
        raise ValueError(f"it has more than {MAX_JSON} values")
    return json.loads(text, object_hook=from_plain)


def _signature(content: bytes, secret: bytes) -> bytes:
    return hmac.new(secret, content, hashlib.sha256).hexdigest().encode()


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


def json_values(data: bytes) -> int:
    """Return a number of values that JSON text cannot exceed, without reading it."""
    return data.count(b",") + data.count(b"[") + data.count(b"{") + 1


def one_line(error: Exception) -> str:
    """Return an error as one line of bounded length, with its type unless it is a ValueError."""
    text = " ".join(str(error).split())
    text = text if len(text) <= 300 else f"{text[:300]}..."
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}"
