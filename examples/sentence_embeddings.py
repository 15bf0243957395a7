"""Sentence pairs by frozen sentence vectors: how similar are two sentences, and how sure is that?

Reads the STS-B-DIR vectors from the folder TAILWISE_DATA; without it, vectors are generated.
"""

import os
from pathlib import Path

import numpy as np

from tailwise import TailRegressor


def pairs(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What tells two sentence vectors apart, as one row: difference, product and cosine."""
    a, b = a.astype(np.float32), b.astype(np.float32)
    return np.c_[np.abs(a - b), a * b, (a * b).sum(1)]


source = Path(os.environ.get("TAILWISE_DATA", "")) / "stsb-dir" / "minilm384.npz"
if os.environ.get("TAILWISE_DATA") and source.exists():
    stored = np.load(source)
    names = ("train", "dev", "test")
    parts = {p: (pairs(stored[f"{p}_a"], stored[f"{p}_b"]), stored[f"{p}_y"]) for p in names}
else:
    rng = np.random.default_rng(0)

    def generated(rows: int) -> tuple[np.ndarray, np.ndarray]:
        a, noise = rng.normal(size=(2, rows, 24)) / 5
        score = np.minimum(rng.exponential(1.2, rows), 5.0)
        near = (score / 5)[:, None]
        return pairs(a, near * a + (1 - near) * noise), score

    parts = {"train": generated(900), "dev": generated(200), "test": generated(200)}

model = TailRegressor(epochs=20, random_state=0).fit(*parts["train"], eval_set=parts["dev"])
print(model.score_by_region(*parts["test"]).round(3).to_string(index=False))
