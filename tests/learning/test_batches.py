"""Batches of inputs with several tensors: what is padding is cut, and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tailwise.core.labels import LabelBins
from tailwise.learning.batches import TensorData, batches, by_length, finite_rows
from tailwise.learning.loop import TrainConfig, fit, predict
from tailwise.methods import build_model
from tailwise.networks.backbones import BiLSTMPair

ROWS, LONGEST, CATEGORIES = 40, 9, 12


def inputs(fill: int = 0) -> dict[str, Tensor]:
    """Pairs of sentences with a mask, and codes of more categories than a sentence has words."""
    g = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, LONGEST + 1, (ROWS, 2, 1), generator=g)
    there = torch.arange(LONGEST + 3) < lengths  # three columns that no row fills
    words = torch.randint(1, 20, there.shape, generator=g, dtype=torch.int32)
    return {
        "words": words.where(there, fill),
        "mask": there,
        "codes": torch.randint(0, 4, (ROWS, CATEGORIES + 3), generator=g),
        "few": torch.randint(0, 4, (ROWS, 2), generator=g),
        "numbers": torch.randn(ROWS, LONGEST + 3, generator=g),
        "group": torch.arange(ROWS),
    }


@pytest.mark.parametrize("order", list(itertools.permutations(("words", "codes", "few"))))
@pytest.mark.parametrize("fill", [0, 7])
def test_only_words_and_masks_are_cut(order: tuple[str, ...], fill: int) -> None:
    given = inputs(fill)
    x = {name: given[name] for name in (*order, "mask", "numbers", "group")}
    lengths = given["mask"].sum(-1).amax(-1)
    data = TensorData(x, torch.rand(ROWS), lengths=lengths)
    for batch in batches(data, 8, torch.device("cpu"), seed=0):
        assert batch.rows is not None
        end = int(lengths[batch.rows].max())
        for name, got in batch.x.items():
            whole = x[name][batch.rows]
            assert torch.equal(got, whole[..., :end] if name in ("words", "mask") else whole), name


def test_nothing_is_cut_where_no_whole_numbers_end_in_padding() -> None:
    codes = inputs()["codes"]
    data = TensorData((codes, codes * 1.5), torch.rand(ROWS), lengths=torch.full((ROWS,), 2))
    assert {t.shape[1] for b in batches(data, 8, torch.device("cpu")) for t in b.x} == {CATEGORIES + 3}


@pytest.mark.parametrize("sentences", [0, slice(2)], ids=["texts", "pairs"])
@pytest.mark.parametrize("fill", [0.0, -torch.inf])
def test_masks_and_weights_of_words_in_floating_point_are_cut(sentences: int | slice, fill: float) -> None:
    words = inputs()["words"][:, sentences]
    g = torch.Generator().manual_seed(0)
    weight = torch.rand(words.shape, generator=g).where(words != 0, fill)
    features = torch.rand(words.shape, generator=g).round()
    lengths = (words != 0).sum(-1).reshape(ROWS, -1).amax(1)
    data = TensorData((weight, words, features), torch.rand(ROWS), lengths=lengths)
    for batch in batches(data, 8, torch.device("cpu"), seed=0):
        end = int(lengths[batch.rows].max())
        assert torch.equal(batch.x[0], weight[batch.rows][..., :end])
        assert torch.equal(batch.x[1], words[batch.rows][..., :end])
        assert torch.equal(batch.x[2], features[batch.rows])


@pytest.mark.parametrize(
    "numbers",
    [[0.3, 0.1, 0.4, 0.1, 0.5], [0.0, 1.0, 0.0, 0.0, 0.0]],
    ids=["one number left", "mostly zero"],
)
def test_nothing_is_cut_where_a_mask_cannot_be_told_from_features(numbers: list[float]) -> None:
    """A single row, as in prediction: whichever it is, words and numbers stay of one width."""
    words = torch.tensor([[4, 5, 6, 7, 0] if numbers[-1] else [4, 5, 6, 0, 0]])
    x = (words, torch.tensor([numbers]), words != 0)
    batch = TensorData(x, torch.zeros(1), lengths=(words != 0).sum(-1)).rows(torch.tensor([0]))
    assert all(torch.equal(got, given) for got, given in zip(batch.x, x, strict=True))


class Weighed(nn.Module):
    """Sums the vectors of words by weights that come with them."""

    feature_dim = 4

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 4)

    def row_lengths(self, x: Any) -> Tensor:
        return (x[0] != 0).sum(-1)

    def forward(self, words: Tensor, weight: Tensor) -> Tensor:
        return (self.table(words) * weight.unsqueeze(-1)).sum(1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_a_network_takes_masks_of_any_kind(dtype: torch.dtype) -> None:
    words = inputs()["words"][:, 0]
    x, y = (words, (words != 0).to(dtype)), words.sum(1).double()
    model = build_model("vanilla", Weighed(), 4, LabelBins.from_labels(y))
    fit(model, (x, y), None, TrainConfig(epochs=1, batch_size=8, accelerator="cpu"), progress=False)
    whole = predict(model, x, batch_size=7).mean
    torch.testing.assert_close(whole, model(x).mean)
    for row in range(5):
        alone = predict(model, tuple(t[row : row + 1] for t in x)).mean
        torch.testing.assert_close(alone, whole[row : row + 1])


class WordsAndCodes(nn.Module):
    """Sentences beside category codes, each of which has a table of its own."""

    feature_dim = 10

    def __init__(self) -> None:
        super().__init__()
        self.pair = BiLSTMPair(np.eye(20, 4), hidden=4, layers=1, projection=6, dropout=0.0)
        self.tables = nn.ModuleList(nn.Embedding(4, 4) for _ in range(CATEGORIES + 3))

    def forward(self, words: Tensor, codes: Tensor) -> Tensor:
        known = [table(code) for table, code in zip(self.tables, codes.unbind(1), strict=True)]
        return torch.cat([self.pair(words), torch.stack(known).sum(0)], -1)


class Measured(WordsAndCodes):
    """One that says how long its rows are."""

    def row_lengths(self, x: Any) -> Tensor:
        return self.pair.row_lengths(x[0])


@pytest.mark.parametrize("network", [WordsAndCodes, Measured])
def test_a_network_of_sentences_and_categories_trains_and_predicts(network: type[WordsAndCodes]) -> None:
    given = inputs()
    x = (given["words"], given["codes"])
    y = x[1].sum(1).double()
    torch.manual_seed(0)
    model = build_model("vir", network(), 10, LabelBins.from_labels(y))
    assert (model.row_lengths(x) is None) is (network is WordsAndCodes)
    config = TrainConfig(epochs=2, batch_size=8, accelerator="cpu")
    fit(model, (x, y), (x, y), config, progress=False)
    whole = predict(model, x, batch_size=7).mean
    torch.testing.assert_close(whole, model(x).mean)
    for row in range(5):
        alone = predict(model, tuple(t[row : row + 1] for t in x)).mean
        torch.testing.assert_close(alone, whole[row : row + 1])


@pytest.mark.parametrize("seed", [None, 0])
def test_batches_by_length_hold_the_rows_that_were_given(seed: int | None) -> None:
    groups = by_length(torch.tensor([7, 8, 9]), torch.tensor([5, 1, 5]), 2, seed)
    assert sorted(torch.cat(groups).tolist()) == [7, 8, 9]


def test_seeded_batches_are_padded_far_less_than_random_ones() -> None:
    g = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 41, (1000,), generator=g)

    def padding(groups: Iterable[Tensor]) -> int:
        return sum(int((lengths[rows].max() - lengths[rows]).sum()) for rows in groups)

    at_random = padding(torch.randperm(1000, generator=g).split(20))
    assert padding(by_length(torch.arange(1000), lengths, 20, seed=0)) < 0.2 * at_random


def test_rows_that_are_finite_in_every_tensor() -> None:
    a, b = torch.zeros(4, 2, 2), torch.zeros(4)
    a[1, 0, 1], b[3] = torch.nan, torch.inf
    assert finite_rows({"a": a, "b": b, "c": torch.zeros(4, 1, dtype=torch.int64)}).tolist() == [
        True,
        False,
        True,
        False,
    ]
