"""Fitted models in use: an HTTP server, an MLflow model, a model card, and a check of the installation.

- `row_schema`: the columns of a model as a JSON schema, and JSON rows as a table
- `batches_of_requests`: requests in a bounded queue, answered together by one thread
- `counters`: figures of the server in the text format of Prometheus
- `web`: the HTTP server
- `pyfunc`: models for MLflow
- `model_card`: a page of Markdown about a model
- `installation`: versions, device, threads and extras
"""
