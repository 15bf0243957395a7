"""Fitted models as ONNX, for places without Python: `export` joins networks, `trees` and `quantiles`."""
