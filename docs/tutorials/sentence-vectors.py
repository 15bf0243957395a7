# %% [markdown]
# # Pairs of vectors
#
# How similar are two sentences? Each has a vector from an encoder that is not trained further, and people
# have scored pairs from 0 to 5. Pairs of nearly equal sentences are rare. Here the vectors are made up, so
# that the page needs no download.

# %%
import numpy as np
import torch
from torch import nn

from tailwise import TailRegressor

rng = np.random.default_rng(0)


def made_up(rows):
    """Return pairs of vectors (rows, 2, 24) and scores; the higher the score, the closer the two."""
    first, noise = rng.normal(size=(2, rows, 24)) / 5
    score = np.minimum(rng.exponential(1.2, rows), 5.0)
    near = (score / 5)[:, None]
    second = near * first + (1 - near) * noise
    return torch.tensor(np.stack([first, second], axis=1), dtype=torch.float32), score


x_train, y_train = made_up(800)
x_valid, y_valid = made_up(200)
x_test, y_test = made_up(300)

# %% [markdown]
# ## A network of your own
#
# A backbone is any module that returns features. This one compares the two vectors, in an order that does
# not matter.


# %%
class Pair(nn.Module):
    """Features of pairs: (N, 2, dim) -> (N, feature_dim)."""

    feature_dim = 64

    def __init__(self, dim):
        super().__init__()
        self.hidden = nn.Sequential(nn.LayerNorm(2 * dim), nn.Linear(2 * dim, 64), nn.ReLU())

    def forward(self, pairs):
        u, v = pairs.unbind(1)
        return self.hidden(torch.cat([(u - v).abs(), u * v], dim=1))


torch.manual_seed(0)  # for the first weights of the network
model = TailRegressor(backbone=Pair(24), bins=np.linspace(0, 5, 51), bounds=(0, 5), random_state=0)
model.fit(x_train, y_train, eval_set=(x_valid, y_valid))
model.score_by_region(x_test, y_test)[["region", "n", "mae", "coverage", "width"]].round(2)

# %% [markdown]
# No bin has more than 100 training pairs, so *many* is empty.
#
# ## Which answers are uncertain?

# %%
frame = model.predict_frame(x_test).assign(score=y_test)
frame.sort_values("std", ascending=False)[["prediction", "lower", "upper", "score"]].head(3).round(2)
