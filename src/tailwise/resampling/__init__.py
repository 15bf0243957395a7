"""Resampling of imbalanced tables before training: SmoteR and SMOGN.

- `smogn`: `smoter` and `smogn`; `resampled`, by name
- `relevance`: how much a label matters, from 0 to 1
- `distances`: nearest rows of tables with numbers and categories
"""
