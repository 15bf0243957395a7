"""A small table to try things on, and splits whose validation and test parts see the tail."""

from tailwise.data.splits import Split, balanced_split, label_holdout, random_split
from tailwise.data.tables import load_abalone

__all__ = ["Split", "balanced_split", "label_holdout", "load_abalone", "random_split"]
