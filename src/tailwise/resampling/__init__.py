"""Resampling of imbalanced tables before training: SmoteR and SMOGN.

- `smogn`: `smoter` and `smogn`; `resampled`, by name
- `distances`: nearest rows of tables with numbers and categories
"""
