# %% [markdown]
# # Pictures
#
# How many dots are in a picture? The pictures are generated, and most have few dots. A small network of your
# own reads them. For photographs, `backbone="resnet18"` takes [arrays of bytes or files](../images.md).

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from tailwise import TailRegressor

rng = np.random.default_rng(0)


def draw(count):
    """Return a picture (24, 24, 3) of bytes with bright dots of 2 x 2 pixels."""
    picture = rng.integers(0, 60, (24, 24, 3))
    for row, column in rng.integers(0, 23, (count, 2)):
        picture[row : row + 2, column : column + 2] = rng.integers(150, 256, 3)
    return picture.astype(np.uint8)


dots = np.minimum(1 + rng.geometric(0.12, 600), 40)
pictures = np.stack([draw(count) for count in dots])

fig, axes = plt.subplots(1, 5, figsize=(6, 1.5))
for ax, row in zip(axes, np.argsort(dots)[[0, 300, 500, 570, 599]], strict=True):
    ax.imshow(pictures[row])
    ax.set(title=f"{dots[row]} dots", xticks=[], yticks=[])

# %% [markdown]
# ## A network, and training
#
# A backbone is any module that returns features of shape `(rows, feature_dim)`. It gets X as a tensor. The
# rest, from label bins to intervals, is the same as for tables.

# %%
torch.manual_seed(0)
network = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
)  # fmt: skip
x = torch.from_numpy(pictures).permute(0, 3, 1, 2) / 255  # (rows, 3, 24, 24)

test = rng.random(len(dots)) < 0.25
model = TailRegressor(backbone=network, feature_dim=128, epochs=40, batch_size=32, random_state=0)
model.fit(x[~test], dots[~test])
model.score_by_region(x[test], dots[test])[["region", "n", "mae", "coverage", "width"]].round(2)

# %% [markdown]
# No bin has more than 100 training pictures, so *many* is empty.
#
# ## Where is it unsure?
#
# Dots are whole numbers, so the ends of intervals are, too.

# %%
frame = model.predict_frame(x[test]).assign(dots=dots[test])
frame.sort_values("std", ascending=False)[["prediction", "lower", "upper", "dots"]].head().round(1)
