"""Fitted models as one file, without pickle."""
