"""Outside peers on the same splits: gradient boosting that says how sure it is."""

from __future__ import annotations

from tailwise.benchmark.contenders import Contender


def peer_contenders() -> list[Contender]:
    """Peers whose package is installed (extra ``peers``), each with and without LDS weights."""
    return []
