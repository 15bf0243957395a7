"""TailRegressor in a scikit-learn Pipeline, tuned by GridSearchCV on an error that sees the tail."""

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from tailwise import LabelBins, TailRegressor
from tailwise.data import load_abalone

table = load_abalone().sample(1200, random_state=0)
rings = table.pop("Rings")


def balanced_mae(truth: np.ndarray, prediction: np.ndarray) -> float:
    """Mean over label bins of the mean absolute error: every age counts alike."""
    index = LabelBins.from_labels(truth).index(truth)
    error = np.bincount(index, np.abs(np.asarray(truth) - prediction)) / np.maximum(np.bincount(index), 1)
    return float(error[np.bincount(index) > 0].mean())


encode = make_column_transformer((OneHotEncoder(sparse_output=False), ["Sex"]), remainder=StandardScaler())
pipeline = make_pipeline(encode, TailRegressor(epochs=15, random_state=0))
search = GridSearchCV(
    pipeline,
    {"tailregressor__method": ["vanilla", "lds", "vir"]},
    scoring=make_scorer(balanced_mae, greater_is_better=False),
    cv=2,
).fit(table, rings)
for setting, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
    print(setting["tailregressor__method"], round(-score, 3))
print("chosen:", search.best_params_["tailregressor__method"])
