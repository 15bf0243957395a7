"""Fit a DataFrame with text and numbers, predict, and look at the tail."""

import numpy as np

from tailwise import TailRegressor, diagnose
from tailwise.data import load_abalone

table = load_abalone()
rings = table.pop("Rings")
print(diagnose(rings).summary())

rng = np.random.default_rng(0)
held = rng.random(len(table)) < 0.25
model = TailRegressor(random_state=0).fit(table[~held], rings[~held])
print(model.predict_frame(table[held]).head())
print(model.score_by_region(table[held], rings[held]).round(3).to_string(index=False))
print(model.explain_intervals())
