"""All golden cases, by name."""

from tests.golden import commands, models, parts  # noqa: F401  (they register their cases)
from tests.golden.recording import CASES

__all__ = ["CASES"]
