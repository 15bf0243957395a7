"""Resampling of imbalanced tables: SmoteR and SMOGN.

- `relevance`: how much a label matters, from 0 to 1
- `distances`: nearest rows of tables with numbers and categories
- `smogn`: `resample`, which makes new rows between real ones
"""
