"""TailRegressor in a scikit-learn Pipeline. GridSearchCV tunes it by an error that includes the tail."""

from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from tailwise import TailRegressor
from tailwise.data import load_abalone
from tailwise.metrics import scorer

table = load_abalone().sample(1200, random_state=0)
rings = table.pop("Rings")

encode = make_column_transformer((OneHotEncoder(sparse_output=False), ["Sex"]), remainder=StandardScaler())
pipeline = make_pipeline(encode, TailRegressor(epochs=15, random_state=0))
search = GridSearchCV(
    pipeline,
    {"tailregressor__method": ["vanilla", "lds", "vir"]},
    scoring=scorer("balanced_mae"),  # the mean over label bins: every age counts the same
    cv=2,
).fit(table, rings)
for setting, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
    print(setting["tailregressor__method"], round(-score, 3))
print("chosen:", search.best_params_["tailregressor__method"])
