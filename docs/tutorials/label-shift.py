# %% [markdown]
# # Labels that shift
#
# A model is trained on healthy people, where large labels are rare, and used in a clinic, where they are
# common. If rows with equal labels look the same in both places, the dial moves the predicted distributions
# to the labels that you expect, without training again.

# %%
import numpy as np
import pandas as pd

from tailwise import TailRegressor

rng = np.random.default_rng(0)


def measure(y):
    """Return four noisy measurements of each label."""
    return y[:, None] + rng.normal(scale=5, size=(y.size, 4))


y_train = np.minimum(rng.exponential(3.0, 1000), 15)  # mostly small
y_clinic = rng.uniform(0, 15, 400)  # all equally often
x_train, x_clinic = measure(y_train), measure(y_clinic)

# %% [markdown]
# ## Train on what you have
#
# One small network without a base is enough here, and trains in seconds.

# %%
model = TailRegressor(base=None, folds=1, epochs=30, emphasis=0, random_state=0).fit(x_train, y_train)

# %% [markdown]
# ## Expect other labels
#
# `emphasis=1` expects every label equally often. If you know more, `label_prior` takes a sample of the
# labels that you expect: here those of 40 other patients of the clinic.

# %%
sample = rng.uniform(0, 15, 40)  # none of them is a test row
settings = {"as in training": {}, "emphasis=1": {"emphasis": 1}, "label_prior": {"label_prior": sample}}
rows = {}
for name, setting in settings.items():
    predicted = model.predict(x_clinic, **setting)
    low, high = model.predict_interval(x_clinic, coverage=0.9, **setting).T
    inside = (y_clinic >= low) & (y_clinic <= high)
    rows[name] = {
        "MAE": np.abs(predicted - y_clinic).mean(),
        "bias of labels over 10": (predicted - y_clinic)[y_clinic > 10].mean(),
        "coverage": inside.mean(),
        "width": (high - low).mean(),
    }
pd.DataFrame(rows).T.round(2)

# %% [markdown]
# The price appears where labels are still as in training:

# %%
y_home = np.minimum(rng.exponential(3.0, 400), 15)
x_home = measure(y_home)
errors = {name: np.abs(model.predict(x_home, **s) - y_home).mean() for name, s in settings.items()}
pd.Series(errors, name="MAE with training labels").round(2).to_frame()
