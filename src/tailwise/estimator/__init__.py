"""`TailRegressor`, the scikit-learn estimator, with saving and ONNX export."""

from tailwise.estimator.regressor import TailRegressor

__all__ = ["TailRegressor"]
