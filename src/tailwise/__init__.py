"""Regression where the interesting labels are rare: accurate in the tail, and honest about it."""
