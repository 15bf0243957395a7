# %% [markdown]
# # Your own foundation model, given a tail
#
# A model that predicts tables without being trained for them, such as TabPFN or TabICL from a checkpoint of
# yours, knows a distribution. Pass it as `base=`: `TailRegressor` cross-fits it and learns the distribution
# around its predictions. If it has a method `predict_quantiles(X, levels)`, the networks see its quantiles
# as well. A list of bases is weighted by errors on held-out rows.

# %%
import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.neighbors import NearestNeighbors

from tailwise import TailRegressor
from tailwise.data import load_abalone

table = load_abalone().sample(1500, random_state=0).reset_index(drop=True)
rings = table.pop("Rings").to_numpy(dtype=float)
test = np.random.default_rng(0).random(len(table)) < 0.3

# %% [markdown]
# ## A regressor with quantiles
#
# A foundation model needs a checkpoint, so a stand-in takes its place here: labels of the 30 nearest rows.
# Your class has the same three methods. It gets the table as a matrix of numbers, with NaN where values are
# missing, and labels with a mean of 0 and a standard deviation of 1.


# %%
class Nearest(RegressorMixin, BaseEstimator):
    """Put your own model here: in `fit`, load its checkpoint and give it the rows."""

    def fit(self, X, y):
        self.middle_, self.spread_ = np.nanmean(X, axis=0), np.nanstd(X, axis=0) + 1e-9
        self.labels_, self.search_ = y, NearestNeighbors(n_neighbors=30).fit(self._scaled(X))
        return self

    def _scaled(self, X):
        return np.nan_to_num((X - self.middle_) / self.spread_)

    def _near(self, X):
        return self.labels_[self.search_.kneighbors(self._scaled(X), return_distance=False)]

    def predict(self, X):
        return self._near(X).mean(axis=1)

    def predict_quantiles(self, X, levels):  # -> (rows, levels)
        return np.quantile(self._near(X), levels, axis=1).T


# %% [markdown]
# ## Fit around it, and around both

# %%
bases = {
    "CatBoost": "catboost",
    "nearest rows": Nearest(),
    "both": ["catboost", Nearest()],
}
models = {
    name: TailRegressor(base=base, emphasis=0, random_state=0).fit(table[~test], rings[~test])
    for name, base in bases.items()
}
{name: [round(weight, 2) for weight in model.base_[0].weights] for name, model in models.items()}

# %% [markdown]
# Mean absolute error, CRPS and coverage of 90% intervals on rows that no model has seen:

# %%
figures = {}
for name, model in models.items():
    low, high = model.predict_interval(table[test], coverage=0.9).T
    figures[name] = {
        "MAE": np.abs(model.predict(table[test]) - rings[test]).mean(),
        "CRPS": model.predict_distribution(table[test]).crps(rings[test]).mean().item(),
        "coverage": np.mean((low <= rings[test]) & (rings[test] <= high)),
    }
pd.DataFrame(figures).T.round(3)

# %% [markdown]
# ## What such a model can and cannot do
#
# - `save` and `export_onnx` refuse a base that they do not know: predict in the process that fitted, or use
#   `pickle`. To deploy, pass predictions instead (`base_prediction=`, see
#   [A tail for your booster](booster.ipynb)).
# - Each fold fits the base once: a fit costs five of its fits, and a prediction five of its predictions.
# - `pool=True` adds networks that do not see the base, for rows where it errs.
