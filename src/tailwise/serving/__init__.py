"""Fitted models in use: an HTTP server, an MLflow model, a model card, and a check of the installation.

- `columns`: the columns of a model, and cells as the table that it predicts
- `requests`: requests and answers of the server, checked by pydantic
- `web`: the HTTP server, which predicts waiting requests together
- `pyfunc`: models for MLflow
- `model_card`: a page of Markdown about a model
- `installation`: versions, device, threads and extras
"""
