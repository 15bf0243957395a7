# %% [markdown]
# # A tail for your booster
#
# You have a boosted model that you trust. `TailRegressor` can learn the distribution around its predictions:
# pass them as `base_prediction`. Rows used for training need predictions of models that have not seen them.

# %%
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import cross_val_predict

from tailwise import TailRegressor
from tailwise.calibration.interval_scores import intervals_by_region
from tailwise.data import load_abalone

table = load_abalone().sample(2000, random_state=0).reset_index(drop=True)
rings = table.pop("Rings").to_numpy(dtype=float)
table["Sex"] = table["Sex"].astype("category")
test = np.random.default_rng(0).random(len(table)) < 0.3

booster = HistGradientBoostingRegressor(max_iter=100, random_state=0)
held_out = cross_val_predict(booster, table[~test], rings[~test], cv=5)  # for training rows: out of fold
booster.fit(table[~test], rings[~test])
new = booster.predict(table[test])

# %% [markdown]
# ## Learn the distribution around it

# %%
model = TailRegressor(random_state=0).fit(table[~test], rings[~test], base_prediction=held_out)
frame = model.predict_frame(table[test], base_prediction=new)
frame.assign(booster=new, rings=rings[test]).head()[
    ["booster", "prediction", "lower", "upper", "rings"]
].round(1)

# %% [markdown]
# ## What has it gained?
#
# The booster alone has no intervals. The usual remedy is one width for all rows, from its out-of-fold
# errors. The table compares coverage and width by region: bins with more than 100, 20 to 100, and fewer
# training rows.

# %%
low, high = np.quantile(rings[~test] - held_out, [0.05, 0.95])
ours = model.predict_interval(table[test], coverage=0.9, base_prediction=new).T
kinds = {"one width for all": (new + low, new + high), "TailRegressor": ours}
found = {
    name: intervals_by_region(*ends, rings[test], model.bins_)[["coverage", "width"]]
    for name, ends in kinds.items()
}
pd.concat(found, axis=1).round(2)

# %% [markdown]
# The prediction itself moves, too: `fit` may turn the dial towards rare labels. Pass `emphasis=0` to leave it
# at the labels of training. Mean absolute errors by region:

# %%
scores = model.score_by_region(table[test], rings[test], base_prediction=new).set_index("region")
regions = model.bins_.regions()[model.bins_.index(rings[test])]
alone = pd.Series(np.abs(new - rings[test])).groupby(regions).mean()
alone["all"] = np.abs(new - rings[test]).mean()
pd.DataFrame({"rows": scores["n"], "booster": alone, "TailRegressor": scores["mae"]}).loc[scores.index].round(
    2
)
