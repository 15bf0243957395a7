"""A saved model as a file: four lines, and what the fourth one leaves.

1. ``tailwise model``, the format's version, and the version of tailwise that wrote it
2. the SHA-256 of what follows these three lines, which finds damage
3. the HMAC of the same with a secret `key`, which finds intent; ``-`` without one
4. the content: see `tailwise.files.codec`
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

from tailwise._version import __version__
from tailwise.writing import write_atomically

FORMAT = b"tailwise model"
VERSION = 7
"""Increase when files change, or defaults of networks; a file of another version is refused."""
MIN_KEY = 16
"""Fewest bytes of a key to sign with."""
Key = bytes | str | Path
"""A secret to sign with: the bytes, or the name of a file that holds them."""


def pack(path: Path, content: bytes, key: Key | None = None) -> None:
    """Write a file atomically; with `key`, signed. The same content gives the same bytes."""
    signature = b"-" if key is None else _signature(content, key_bytes(key))
    first = b"%s %d %s" % (FORMAT, VERSION, __version__.encode())
    lines = b"\n".join([first, hashlib.sha256(content).hexdigest().encode(), signature, content])
    write_atomically(path, lambda part: part.write_bytes(lines))


def unpack(path: Path, key: Key | None = None) -> bytes:
    """Return the content of a file, as `pack` took it.

    With `key`, a file that was not signed with it is an error. A file that is missing, cut short, damaged,
    changed, of another kind or of another version is an `OSError` or a `ValueError` that says so.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ValueError(f"{path} is a pipe or a device, not a saved model")
    secret = None if key is None else key_bytes(key)
    with path.open("rb") as file:
        if file.read(len(FORMAT)) != FORMAT:
            raise ValueError(f"{path} is not a saved tailwise model")
        first, checksum, signature, content = [*file.read().split(b"\n", 3), b"", b"", b""][:4]
    version, _, writer = first.strip().decode(errors="replace").partition(" ")
    if version != str(VERSION):
        raise ValueError(
            f"{path} was written by tailwise {writer:.20} in format {version:.20}, and tailwise "
            f"{__version__} reads format {VERSION}: install that version, or fit the model again"
        )
    if hashlib.sha256(content).hexdigest().encode() != checksum:
        raise ValueError(f"{path} was changed, damaged or cut short: it does not match its checksum")
    if secret is not None and signature == b"-":
        raise ValueError(f"{path} is not signed: load it without a key only if you trust where it comes from")
    if secret is not None and not hmac.compare_digest(signature, _signature(content, secret)):
        raise ValueError(f"{path} was signed with another key, or changed after it was signed")
    return content


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
