"""The plain network and the decoder of table rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from tailwise.backbones import MLP, TableDecoder


def test_mlp_by_hand() -> None:
    torch.manual_seed(0)
    net = MLP(5, hidden=(7, 4), dropout=0.5).double().eval()
    assert net.feature_dim == 4
    x = torch.randn(6, 5, dtype=torch.float64)
    value = x.numpy()
    for layer in [m for m in net.modules() if isinstance(m, nn.Linear)]:
        value = np.maximum(value @ layer.weight.detach().numpy().T + layer.bias.detach().numpy(), 0)
    np.testing.assert_allclose(net(x).detach(), value, rtol=1e-12)
    assert net(x).shape == (6, 4)


def test_mlp_drops_in_training_only() -> None:
    torch.manual_seed(0)
    net, x = MLP(5, hidden=(64,), dropout=0.5), torch.randn(8, 5)
    assert not torch.equal(net(x), net(x))
    net.eval()
    assert torch.equal(net(x), net(x))
    assert MLP(3, hidden=()).feature_dim == 3


@pytest.mark.parametrize(("numeric", "categories"), [(3, (2, 4)), (2, ()), (0, (3,))])
def test_decoder_by_hand(numeric: int, categories: tuple[int, ...]) -> None:
    """VIR:recon: half the squared error of a number, -log softmax of a category, row by row."""
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    decoder = TableDecoder(4, numeric, categories, hidden=6).double()
    z = rng.normal(size=(7, 4))
    codes = [rng.integers(0, size, 7) for size in categories]
    x = np.column_stack([rng.normal(size=(7, numeric)), *codes])
    got = decoder.nll(torch.as_tensor(z), torch.as_tensor(x))
    assert got.shape == (7,)
    first, out = decoder.body[0], decoder.head
    for i in range(7):
        inner = np.maximum(first.weight.detach().numpy() @ z[i] + first.bias.detach().numpy(), 0)
        raw = out.weight.detach().numpy() @ inner + out.bias.detach().numpy()
        want = sum((x[i, c] - raw[c]) ** 2 / 2 for c in range(numeric))
        start = numeric
        for column, size in enumerate(categories):
            scores = raw[start : start + size]
            want += math.log(sum(math.exp(s) for s in scores)) - scores[int(x[i, numeric + column])]
            start += size
        assert got[i].item() == pytest.approx(want)


def test_decoder_gradients_equal_finite_differences() -> None:
    torch.manual_seed(2)
    decoder = TableDecoder(3, 2, (3,), hidden=5).double()
    x = torch.tensor([[0.1, -1.0, 2.0], [1.0, 0.3, 0.0]]).double()
    z = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: decoder.nll(z, x), (z,))
