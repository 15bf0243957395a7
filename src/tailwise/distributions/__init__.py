"""Predictive distributions, which every head returns.

- `members`: the contract, Normal, NIG and mixtures; `student_t`: the members that they are made of
- `tilt`: predictions under other weights of the labels; `truncation`: within bounds; `transform`: on another
  scale of the labels
"""
