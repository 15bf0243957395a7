"""How similar are two sentences, and how certain is the answer? Trained on frozen sentence vectors.

Reads the STS-B-DIR vectors from the folder TAILWISE_DATA. If it is not set, vectors are generated.
"""

import os
from pathlib import Path

import numpy as np

from tailwise import TailRegressor
from tailwise.data import PairVectors, Parts, load_sentence_vectors
from tailwise.networks.backbones import VectorPair

rng = np.random.default_rng(0)


def generated(rows: int) -> PairVectors:
    """Random pairs. The higher the score of a pair, the closer its two vectors."""
    a, noise = rng.normal(size=(2, rows, 24)) / 5
    score = np.minimum(rng.exponential(1.2, rows), 5.0)
    near = (score / 5)[:, None]
    return PairVectors(np.stack([a, near * a + (1 - near) * noise], axis=1).astype(np.float32), score)


source = Path(os.environ.get("TAILWISE_DATA", "")) / "stsb-dir" / "minilm384.npz"
if os.environ.get("TAILWISE_DATA") and source.exists():
    parts = load_sentence_vectors(source)
else:
    parts = Parts(generated(2000), generated(300), generated(300))

train, dev, test = parts.train, parts.dev, parts.test
model = TailRegressor(
    backbone=VectorPair(train.x.shape[2], rows=train.x),
    bins=np.linspace(0, 5, 51),  # with few=30, the bins and regions of DIR's published figures
    few=30,
    epochs=20,
    random_state=0,
).fit(train.x, train.y, eval_set=(dev.x, dev.y))
print(model.score_by_region(test.x, test.y).round(3).to_string(index=False))
