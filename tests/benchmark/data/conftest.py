"""STS-B-DIR in small."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

WORDS = [
    "a",
    "man",
    "is",
    "playing",
    "the",
    "old",
    "guitar",
    "and",
    "woman",
    "dog",
    "runs",
    "in",
    "big",
    "red",
    "field",
    "near",
    "house",
]


def _sentence(rng: np.random.Generator) -> str:
    return " ".join(rng.choice(WORDS, rng.integers(3, 12)))


@pytest.fixture
def stsb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """STS-B-DIR in small: generated sentences and vectors in the same layout."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "data" / "stsb-dir"
    folder.mkdir(parents=True)
    vectors: dict[str, np.ndarray] = {}
    for part, rows in (("train", 120), ("dev", 40), ("test", 40)):
        header = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
        scores = np.round(rng.uniform(0, 5, rows) ** 2 / 5, 3)
        lines = [
            f"{i}\tmain\tx\t2012\t{i}\tnone\tnone\t{_sentence(rng)}\t{_sentence(rng)}\t{score}"
            for i, score in enumerate(scores)
        ]
        (folder / f"{part}.tsv").write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
        for side in "ab":
            vectors[f"{part}_{side}"] = rng.normal(size=(rows, 8)).astype(np.float16)
        vectors[f"{part}_y"] = scores
    np.savez(folder / "minilm384.npz", **vectors)
    np.savez(
        folder / "glove6B_50+100d.npz",
        words=np.array(WORDS),
        vectors=rng.normal(size=(len(WORDS), 6)).astype(np.float32),
    )
    monkeypatch.setenv("TAILWISE_DATA", str(tmp_path / "data"))
    return folder
