"""Sentence pairs: files, words, networks against packed sequences, and methods on them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tailwise.labels.bins import LabelBins
from tailwise.methods import build_model
from tailwise.training.loop import TrainConfig, fit, predict
from tailwise_bench.sources.sentence_pairs import (
    PAIRS,
    BatchesByLength,
    BiLSTMPair,
    PairDecoder,
    VectorPair,
    pair_features,
    read_pairs,
)
from tailwise_bench.sources.words import Vocabulary, tokenize, word_vectors
from tests.networks.waiting import NothingWaits

WORDS = 30

# -- files and words -------------------------------------------------------------------------------


def write(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(["index\tsentence1\tsentence2\tscore", *rows]) + "\n", encoding="utf-8")
    return path


def test_quotation_marks_and_other_line_ends_are_characters(tmp_path: Path) -> None:
    rows = '0\t"Open\tone\u2028two\t4.571', '1\tcafé\tShe said "no".\t5'
    pairs, scores = read_pairs(write(tmp_path / "a.tsv", *rows))
    assert pairs == [('"Open', "one\u2028two"), ("café", 'She said "no".')]
    assert scores.tolist() == [4.571, 5.0]


@pytest.mark.parametrize("row", ["0\ta\tb", "0\ta\tb\tnan", "0\ta\tb\t5.1", "0\t \tb\t1", "0\ta\tb\tgood"])
def test_a_bad_row_is_named_by_its_line(tmp_path: Path, row: str) -> None:
    path = write(tmp_path / "a.tsv", "0\ta\tb\t1", row)
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}, line 3: expected two sentences"):
        read_pairs(path)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (" \t\n", ""),
        ("I can't, won't and shan't", "i can n't , will n't and shall n't"),
        ("the boys' dog’s don’t don´t", "the boys ' dog 's do n't do n't"),
        ("O'Brien 'quoted' rock", "o'brien ' quoted ' rock"),
        ("in the U.S. at 9 a.m., e.g. U.S", "in the u.s. at 9 a.m. , e.g. u.s"),
        ("$1,000.50 is 5% of 9/11 at 12:01", "$ 1,000.50 is 5 % of 9/11 at 12:01"),
        ("well-known -- AT&T ...", "well-known -- at&t ..."),
        ("``quoted'' “text” «x»", '" quoted " " text " " x "'),
        ("Bush‚Äôs ‚Äúplan‚ÄĚ", 'bush \'s " plan "'),  # UTF-8 once read as Macintosh text
    ],
)
def test_tokens(text: str, tokens: str) -> None:
    assert tokenize(text) == tokens.split()


def test_unknown_words_are_tried_in_simpler_forms() -> None:
    words = ("us", "-", "tech", "heavy", "cafe", "1,520", "1500", "361000")
    named = dict(enumerate(words, start=2)) | {1: "?"}
    text = "U.S. -- café tech-heavy tech-laden 1,520.15 1,544 361,499 77 zorp-blib"
    pieces = "us - cafe tech heavy tech ? 1,520 1500 361000 ? ?"
    assert [named[i] for i in Vocabulary(words).encode(text)] == pieces.split()


def test_pairs_are_padded() -> None:
    ids = Vocabulary(("a", "b")).encode_pairs([("", " "), ("a b a", "b")])
    assert ids.tolist() == [[[1, 0, 0], [1, 0, 0]], [[2, 3, 2], [3, 0, 0]]]


def test_rows_of_vectors_are_those_of_the_ids_and_words_without_one_differ() -> None:
    vectors = np.random.default_rng(0).normal([5, -1], [0.1, 3], (500, 2)).astype(np.float32)
    words = [f"w{i}" for i in range(500)]
    table = word_vectors(words, vectors, Vocabulary((*words[::-1], *(f"x{i}" for i in range(2000)))))
    assert (table[0] == 0).all() and (table[2:502] == vectors[::-1]).all()
    np.testing.assert_allclose(table[1], vectors.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(table[502:].mean(axis=0), vectors.mean(axis=0), atol=0.3)
    np.testing.assert_allclose(table[502:].std(axis=0), vectors.std(axis=0), rtol=0.1)


def test_stsb_dir_has_the_published_sizes_and_shots(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILWISE_DATA", str(data_root))
    problem = PAIRS.data["stsb-words"].problem(0)
    assert [len(y) for y in (problem.y_train, problem.y_valid, problem.y_test)] == [5249, 1000, 1000]
    shots = problem.bins.regions(*problem.shots)[problem.bins.index(problem.y_test)]
    assert [int((shots == region).sum()) for region in ("many", "medium", "few")] == [756, 170, 74]


# -- networks --------------------------------------------------------------------------------------


def _pairs(rows: int, longest: int = 9) -> torch.Tensor:
    rng = np.random.default_rng(0)
    words = rng.integers(1, WORDS, (rows, 2, longest))
    lengths = rng.integers(1, longest + 1, (rows, 2, 1))
    return torch.from_numpy(np.where(np.arange(longest) < lengths, words, 0).astype(np.int32))


def _small(**options: object) -> BiLSTMPair:
    torch.manual_seed(0)
    vectors = np.random.default_rng(0).normal(size=(WORDS, 6)).astype(np.float32)
    vectors[0] = 0
    return BiLSTMPair(vectors, **{"hidden": 5, "dropout": 0.0, "projection": None, **options})  # type: ignore[arg-type]


def _packed(net: BiLSTMPair, words: torch.Tensor) -> torch.Tensor:
    """The same encoder by packed sequences and torch's own bidirectional LSTM."""
    lengths = (words != 0).sum(-1)
    h = net.vectors[words.long()]
    for layer in net.layers:
        both = nn.LSTM(h.shape[-1], 5, batch_first=True, bidirectional=True)
        for suffix, one in (("", layer.forth), ("_reverse", layer.back)):
            for name, value in one.named_parameters():
                getattr(both, name + suffix).data.copy_(value)
        packed = pack_padded_sequence(h, lengths, batch_first=True, enforce_sorted=False)
        h, _ = pad_packed_sequence(both(packed)[0], batch_first=True, total_length=words.shape[1])
    h = h.masked_fill((words == 0).unsqueeze(-1), -torch.inf)
    return h.amax(1)


def test_encoder_equals_packed_sequences_whatever_the_padding() -> None:
    net, x = _small().eval(), _pairs(20)
    u, v = _packed(net, x[:, 0]), _packed(net, x[:, 1])
    torch.testing.assert_close(net(x), pair_features(u, v), rtol=1e-5, atol=1e-6)
    padded = torch.cat([x, torch.zeros(20, 2, 4, dtype=x.dtype)], -1)
    torch.testing.assert_close(net(padded), net(x), rtol=1e-5, atol=1e-6)


def test_dropout_leaves_equal_sentences_equal() -> None:
    net = _small(dropout=0.5).train()
    x = _pairs(30)
    same = torch.stack([x[:, 0], x[:, 0]], 1)
    _, _, apart, _ = net(same).chunk(4, -1)
    assert (apart == 0).all(), "|u - v| of a sentence and itself"
    assert not torch.equal(net(same), net(same)), "dropout must act"


def test_vector_pair_standardises_by_its_rows_in_any_order_of_sentences() -> None:
    rows = torch.from_numpy(np.random.default_rng(0).normal(3, 2, (200, 2, 4)).astype(np.float32))
    net = VectorPair(4, rows=rows, hidden=(8,), input_dropout=0.5).eval()
    seen: list[torch.Tensor] = []
    net.network.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    torch.testing.assert_close(net(rows.flip(1)), net(rows))
    torch.testing.assert_close(seen[0].mean(0), torch.zeros(13), atol=1e-4, rtol=0)
    torch.testing.assert_close(seen[0].std(0, correction=0), torch.ones(13), atol=1e-4, rtol=0)
    assert (net.train()(rows) - net.eval()(rows)).abs().max() > 0


def test_decoder_by_hand() -> None:
    vectors = np.array([[9, 9], [1, 0], [0, 2]], np.float32)  # what padding has must not count
    decoder = PairDecoder(1, vectors)
    with torch.no_grad():
        decoder.head.weight.copy_(torch.tensor([[1.0], [-2.0], [0.5], [0.0]]))
        decoder.head.bias.copy_(torch.tensor([0.0, 1.0, 0.0, -1.0]))
    x = torch.tensor([[[1, 2, 0], [2, 0, 0]], [[1, 1, 0], [1, 2, 2]]])
    targets = [[0.5, 1.0, 0.0, 2.0], [1.0, 0.0, 1 / 3, 4 / 3]]
    torch.testing.assert_close(decoder.targets(x), torch.tensor(targets))
    # From z = 3 it predicts 3, -5, 1.5, -1, from z = -1 it predicts -1, 3, -0.5, -1.
    want = [
        0.5 * (2.5**2 + 6**2 + 1.5**2 + 3**2),
        0.5 * (2**2 + 3**2 + (1 / 3 + 0.5) ** 2 + (4 / 3 + 1) ** 2),
    ]
    torch.testing.assert_close(decoder.nll(torch.tensor([[3.0], [-1.0]]), x), torch.tensor(want))
    torch.testing.assert_close(PairDecoder(1, dim=2).targets(torch.ones(3, 2, 2)), torch.ones(3, 4))


@pytest.mark.parametrize("name", ["vir", "ensemble"])
def test_methods_train_on_pairs_and_no_step_waits_for_a_gpu(name: str) -> None:
    x, y = _pairs(48), torch.rand(48, generator=torch.Generator().manual_seed(0)) * 5
    model = build_model(name, _small(projection=6), 6, LabelBins.from_labels(y.numpy(), count=10))
    config = TrainConfig(epochs=2, batch_size=24, accelerator="cpu")
    result = fit(model, (x, y), (x, y), config)
    assert np.isfinite([row["loss"] for row in result.history]).all()
    whole = predict(model, x).mean.float()  # as exact as the network is
    torch.testing.assert_close(predict(model, x, batch_size=7).mean.float(), whole)
    model.train()
    with NothingWaits():
        loss, _ = model.loss(x, y)
        loss.backward()


def test_batches_hold_rows_of_similar_length_once() -> None:
    x = _pairs(50)
    data = BatchesByLength(x, torch.arange(50.0), BiLSTMPair.row_lengths(x))
    batches = list(data.shard(0, 1, 8, 3))
    assert sorted(int(row) for _, y in batches for row in y) == list(range(50))
    for words, rows in batches:
        assert torch.equal(words, x[rows.long()][..., : words.shape[-1]])
        assert words.shape[-1] == int(data.lengths[rows.long()].max())
    shared = [rows for k in (0, 1) for _, rows in data.shard(k, 2, 8, 3)]
    assert sorted(int(row) for rows in shared for row in rows) == list(range(50))
