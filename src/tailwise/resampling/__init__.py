"""Resampling of imbalanced tables before training: SmoteR and SMOGN."""
