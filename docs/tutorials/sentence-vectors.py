# %% [markdown]
# # Sentence vectors
#
# How similar are two sentences? Each sentence has a vector from an encoder that is not trained further, and
# people have scored pairs from 0 to 5. Pairs of nearly equal sentences are rare. Here the vectors are made
# up, so that the page needs no download; [sentence pairs](../sentences.md) shows real ones.

# %%
import numpy as np
import torch

from tailwise import TailRegressor
from tailwise.data import PairVectors
from tailwise.networks.backbones import VectorPair

rng = np.random.default_rng(0)


def made_up(rows):
    """Return pairs of vectors; the higher the score, the closer the two."""
    first, noise = rng.normal(size=(2, rows, 24)) / 5
    score = np.minimum(rng.exponential(1.2, rows), 5.0)
    near = (score / 5)[:, None]
    second = near * first + (1 - near) * noise
    return PairVectors(np.stack([first, second], axis=1).astype(np.float32), score)


train, validation, test = made_up(800), made_up(200), made_up(300)
train.x.shape  # pairs, two sentences, numbers per vector

# %% [markdown]
# ## A network for pairs
#
# `VectorPair` compares the two vectors in both directions, so that the order of the sentences does not
# matter. It is an ordinary module: any network of your own works in its place. The label bins are those of
# the published figures.

# %%
torch.manual_seed(0)  # for the first weights of the network
model = TailRegressor(
    backbone=VectorPair(24, rows=train.x),
    bins=np.linspace(0, 5, 51),
    few=30,
    epochs=20,
    random_state=0,
)
model.fit(train.x, train.y, eval_set=(validation.x, validation.y))
model.score_by_region(test.x, test.y)[["region", "n", "mae", "coverage", "width"]].round(2)

# %% [markdown]
# No bin has more than 100 training pairs, so *many* is empty.
#
# ## Which answers are uncertain?

# %%
frame = model.predict_frame(test.x).assign(score=test.y)
frame.sort_values("std", ascending=False)[["prediction", "lower", "upper", "score"]].head(3).round(2)
