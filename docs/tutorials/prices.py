# %% [markdown]
# # Prices with a long tail
#
# Most flats of this made-up table cost about the same, and a few cost ten times as much. You see whether the
# rare prices deserve attention, train on numbers, a category, text and missing values, read error and
# coverage for common and rare prices, and turn the dial after training.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from tailwise import TailRegressor, diagnose

rng = np.random.default_rng(0)
n = 1500
area = np.round(rng.gamma(6, 12, n) + 15)
district = rng.choice(["harbour", "hill", "old town", "station"], n, p=[0.1, 0.15, 0.25, 0.5])
lift = rng.random(n) < 0.4
words = rng.choice(["quiet yard", "bright rooms", "near the park", "needs repair"], n)
factor = pd.Series(district).map({"harbour": 1.9, "hill": 1.4, "old town": 1.1, "station": 0.8}).to_numpy()
noise = np.exp(0.2 * rng.normal(size=n) + 0.15 * rng.standard_t(3, n).clip(-3, 6))
price = np.round(area * factor * (1 - 0.25 * (words == "needs repair")) * (1 + 0.1 * lift) * noise * 3, 1)

flats = pd.DataFrame({"area": area, "district": district, "lift": lift, "words": words})
flats.loc[rng.random(n) < 0.05, "area"] = np.nan
flats.assign(price=price).head()

# %% [markdown]
# ## Is the imbalance worth acting on?
#
# `diagnose` describes labels before anything is trained.

# %%
print(diagnose(price).summary())

# %%
fig, ax = plt.subplots(figsize=(6, 2.4))
ax.hist(price, bins=60, color="teal")
ax.set(xlabel="price", ylabel="flats")

# %% [markdown]
# ## Train
#
# `fit` takes the table as it is. CatBoost predicts the price, and five networks predict the distribution
# around it. Prices are never negative, which `bounds` says.

# %%
test = rng.random(n) < 0.25
model = TailRegressor(bounds=(0, None), random_state=0).fit(flats[~test], price[~test])
model.predict_frame(flats[test], coverage=0.9).head().round(1)

# %% [markdown]
# ## Common and rare prices
#
# Regions go by the number of training rows in the label's bin: *many* is over 100, *few* under 20.
# `coverage` is the share of test labels inside the 90% intervals.

# %%
columns = ["region", "n", "mae", "coverage", "width"]
model.score_by_region(flats[test], price[test])[columns].round(2)

# %% [markdown]
# ## Turn the dial
#
# An emphasis of 0 expects prices as in training, 1 expects every price equally often. The error for rare
# prices falls, and that for common ones rises; your task decides what is worth more.

# %%
settings = {0.0: "emphasis 0", model.emphasis_: "chosen by fit", 1.0: "emphasis 1"}
errors = {
    name: model.score_by_region(flats[test], price[test], emphasis=t).set_index("region")["mae"]
    for t, name in settings.items()
}
pd.DataFrame(errors).round(1)

# %% [markdown]
# ## Keep the model
#
# One file, without pickle: `model.save("flats.tailwise")`, and later
# `TailRegressor.load("flats.tailwise")`. The same on the command line is `tailwise fit flats.csv --target
# price --out flats.tailwise --report flats.html`.
