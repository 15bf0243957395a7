"""Ours against numbers that published code computed once; see golden/README.md."""
