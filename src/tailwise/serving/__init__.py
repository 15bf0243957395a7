"""Fitted models in use: an HTTP server, an MLflow model and a model card.

- `columns`: the columns of a model, and cells as the table that it predicts
- `web`: the HTTP server, which predicts waiting requests together
- `pyfunc`: models for MLflow
- `model_card`: a page of Markdown about a model
"""
