"""`TailRegressor`, the scikit-learn estimator: tables in, predictions with intervals out.

- `regressor`: `TailRegressor` itself
- `preparing`: what it makes of inputs, labels and the base; `predicting`: what its networks predict
- `fitting`: the steps of its fit; `recalibration`: new labelled rows for a fitted model
- `model_files`: its methods that write and read files
- `bases`: base regressors and their cross-fitting
- `saving`, `loading`: fitted models as one file, without pickle; `archive`, `base_files` and
  `skops_files` are the parts of that file
- `onnx`: fitted models for places without Python; `onnx_trees` and `onnx_quantiles` are parts of its graph
- `matching`: which columns of a table are a model's inputs and targets
"""

from tailwise.estimator.regressor import TailRegressor

__all__ = ["TailRegressor"]
