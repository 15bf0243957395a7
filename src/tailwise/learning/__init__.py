"""Training: one loop for every method.

- `config`: how to train, as one frozen configuration
- `batches`: training data as batches
- `loop`: `fit` and `predict`
- `nonfinite`: the error for a loss that is not finite
- `progress`: how training shows itself
"""
