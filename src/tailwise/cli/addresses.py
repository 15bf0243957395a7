"""A limit on addresses (ulimit -v): what counts against it, how to reserve less, and when it is too small.

Such a limit counts memory that is reserved, used or not. Libraries reserve much: pyarrow and CatBoost 1 GB
each, the C library 64 MB for every thread. When they cannot, some end the process without a message.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PLENTY = 8_000_000_000
"""From this limit on, libraries may reserve what they like."""
NETWORK = 1_700_000_000
"""What a command reserves, in bytes, that trains or loads a network, with some to spare."""
CATBOOST = 1_400_000_000
"""What CatBoost reserves beside that."""
_THREAD = 16_000_000
_THREADS = 4


def address_limit() -> int | None:
    """Return the limit on addresses in bytes, or None without one."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def reserve_less() -> None:
    """Make libraries that are imported later reserve less, if a limit counts it; numbers do not change.

    What the user has set in the environment stays.
    """
    limit = address_limit()
    if limit is None or limit >= PLENTY:
        return
    threads = str(min(_THREADS, os.cpu_count() or 1))
    for name, value in (
        ("ARROW_DEFAULT_MEMORY_POOL", "system"),
        ("MALLOC_ARENA_MAX", "1"),  # for processes that this one starts
        ("OMP_NUM_THREADS", threads),
        ("OPENBLAS_NUM_THREADS", "1"),
    ):
        os.environ.setdefault(name, value)
    import ctypes

    with suppress(AttributeError, OSError, TypeError):  # only glibc has this
        ctypes.CDLL(None).mallopt(-8, 1)  # M_ARENA_MAX


def check_addresses(*, catboost: bool, otherwise: str = "") -> None:
    """Raise an error if the limit on addresses is smaller than what is reserved in any case.

    `otherwise` says how to do without CatBoost. Call it before heavy packages are imported.
    """
    limit = address_limit()
    needed = NETWORK + (CATBOOST if catboost else 0) + _THREAD * (os.cpu_count() or 1)
    if limit is not None and limit < needed:
        less = f", {otherwise}" if catboost and otherwise else ""
        raise ValueError(
            f"the limit of {limit / 1e9:.1f} GB (ulimit -v) is too small: it also counts memory that is "
            f"reserved but not used, at least {needed / 1e9:.1f} GB. Raise it{less}, or limit the memory of "
            "a container instead"
        )


def check_model(path: Path) -> None:
    """Raise an error if the limit on addresses is too small for a model, before it is loaded."""
    if address_limit() is None:
        return
    start = b""
    with suppress(OSError), path.open("rb") as file:
        start = file.read(1 << 20)
    check_addresses(catboost=b'{"CatBoost": ' in start)
