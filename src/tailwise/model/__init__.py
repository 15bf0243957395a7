"""A fitted model and how it is made.

- `model`: `Model`, which owns everything that a prediction needs
- `inputs`: tables, pictures and tensors, encoded once per call; which columns of a table are which
- `base`: base regressors and their cross-fitting; `split`: which rows train and which are held out
- `fit`: from labelled rows to a model; `stream`: from a stream of rows to a model
- `settings`: the parameters of `TailRegressor`, which `fit` reads
"""
