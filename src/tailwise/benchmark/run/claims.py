"""Claims: what one process works on, no other does. A claim ends with its process, however that ends.

Processes that share a folder claim by locked files. Processes that share a PostgreSQL server claim by its
advisory locks, which the server releases when a connection ends.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from tailwise.data.writing import HeldError, locked

POLL = 1.0
"""Seconds after which a process looks again whether a claim of another one has ended."""
_PATIENCE = 0.05
_DIGEST = 8


class Claims(Protocol):
    """Names that this process has claimed."""

    def take(self, name: str) -> bool:
        """Claim a name; False if another process has it."""

    def release(self, name: str) -> None:
        """End a claim."""

    def close(self) -> None:
        """End all claims."""


def _digest(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=_DIGEST).digest()


class FileClaims:
    """Claims of processes that share a file: locks on hidden files beside it. A context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.held: dict[str, ExitStack] = {}

    def take(self, name: str) -> bool:
        """Claim a name; False if another process has it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        stack = ExitStack()
        try:
            stack.enter_context(locked(self._lock(_digest(name).hex())))
        except HeldError:
            return False
        self.held[name] = stack
        return True

    def _lock(self, digest: str) -> Path:
        return self.path.with_name(f".{self.path.name}.{digest}.lock")

    def release(self, name: str) -> None:
        """End a claim, if there is one."""
        self.held.pop(name, ExitStack()).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all claims, and remove the files of processes that were killed."""
        for name in list(self.held):
            self.release(name)
        ours = re.compile(re.escape(f".{self.path.name}.") + rf"[0-9a-f]{{{2 * _DIGEST}}}\.lock")
        for path in self.path.parent.glob(".*.lock") if self.path.parent.is_dir() else ():
            if ours.fullmatch(path.name):
                with ExitStack() as stack:
                    try:
                        stack.enter_context(locked(path))
                    except OSError:  # of a process that runs, or already removed
                        continue


class PostgresClaims:
    """Claims of processes that share a PostgreSQL server: advisory locks of one connection."""

    def __init__(self, url: str) -> None:
        try:
            import psycopg
        except ImportError:
            raise ImportError("PostgreSQL needs psycopg: pip install 'tailwise[postgres]'") from None
        # A connection that a firewall dropped would lose its claims: keep it busy.
        self.connection: Any = psycopg.connect(url, autocommit=True, keepalives_idle=60)

    def take(self, name: str) -> bool:
        """Claim a name; False if another process has it."""
        row = self.connection.execute("SELECT pg_try_advisory_lock(%s)", [self._key(name)]).fetchone()
        return bool(row[0])

    def release(self, name: str) -> None:
        """End a claim."""
        self.connection.execute("SELECT pg_advisory_unlock(%s)", [self._key(name)])

    def close(self) -> None:
        """End all claims."""
        self.connection.close()

    @staticmethod
    def _key(name: str) -> int:
        return int.from_bytes(_digest(name), signed=True)


@contextmanager
def waiting_for(claims: Claims, name: str) -> Iterator[None]:
    """Claim a name, and wait for it while another process has it."""
    while not claims.take(name):
        time.sleep(_PATIENCE)
    try:
        yield
    finally:
        claims.release(name)
