"""Data sets that are not tables, and the networks on them."""
