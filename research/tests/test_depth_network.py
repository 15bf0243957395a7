"""Features of every pixel, and every method on them."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

from tailwise.labels.bins import LabelBins
from tailwise.methods import build_model
from tailwise.training.loop import TrainConfig, fit, predict
from tailwise_bench.networks.depth import DepthNet, PixelDecoder, map_size
from tailwise_bench.sources.depth_maps import EDGES

HEIGHT, WIDTH = 36, 48


def scene(rows: int = 6) -> tuple[Tensor, Tensor]:
    """Pictures whose brightness is their depth."""
    depth = 1 + 8 * torch.rand(rows, 3, 4, generator=torch.Generator().manual_seed(0))
    depth = depth.repeat_interleave(6, 1).repeat_interleave(6, 2)  # (rows, 18, 24)
    large = depth.repeat_interleave(2, 1).repeat_interleave(2, 2)
    return (25 * large).to(torch.uint8).unsqueeze(3).expand(-1, -1, -1, 3).contiguous(), depth


def small(width: int = 4) -> DepthNet:
    torch.manual_seed(0)
    return DepthNet("plain", width=width)


@pytest.mark.parametrize(("height", "width"), [(36, 48), (38, 50)])
def test_features_are_half_the_picture(height: int, width: int) -> None:
    x = torch.zeros(2, height, width, 3, dtype=torch.uint8)
    features = small()(x)
    assert features.shape == (2, *map_size(height, width), small().feature_dim)
    assert features.reshape(-1, features.shape[-1]).data_ptr() == features.data_ptr()  # rows are no copy


def test_the_network_of_nyud2(torchvision: ModuleType) -> None:
    net = DepthNet("resnet50")
    assert net.feature_dim == 128
    widths = [(up.skip[0].in_channels, up.skip[0].out_channels) for up in net.up]  # type: ignore[index,union-attr]
    assert widths == [(1024, 512), (512, 256), (256, 128), (128, 64)]
    fused = [(up.skip[0].in_channels, up.skip[0].out_channels) for up in net.fuse]  # type: ignore[index,union-attr]
    assert fused == [(256, 16), (512, 16), (1024, 16), (2048, 16)]
    assert DepthNet("resnet18").eval()(torch.zeros(1, 32, 32, 3, dtype=torch.uint8)).shape == (1, 16, 16, 128)


@pytest.mark.parametrize("name", ["lds-fds-der", "vir", "ranksim"])
def test_methods_train_on_pixels(name: str) -> None:
    x, y = scene(2)
    net = small()
    bins = LabelBins.from_labels(y, edges=EDGES)
    model = build_model(name, net, net.feature_dim, bins)
    config = TrainConfig(epochs=2, batch_size=1, accelerator="cpu", monitor="balanced_mse")
    result = fit(model, (x, y), (x, y), config)
    assert np.isfinite(result.best_score)
    prediction = predict(model, x)
    assert prediction.shape == y.shape and (prediction.variance > 0).all()


def test_the_decoder_reconstructs_the_colour_of_each_pixel() -> None:
    x, y = scene(2)
    net = small()
    decoder = PixelDecoder(net.feature_dim)
    torch.nn.init.zeros_(decoder.linear.weight)
    torch.nn.init.zeros_(decoder.linear.bias)
    z = torch.zeros(y.numel(), net.feature_dim)
    mean, std = 255 * torch.tensor((0.485, 0.456, 0.406)), 255 * torch.tensor((0.229, 0.224, 0.225))
    expected = 0.5 * (((x[:, ::2, ::2].float() - mean) / std) ** 2).mean(-1).reshape(-1)
    torch.testing.assert_close(decoder.nll(z, x), expected)
    model = build_model(
        "vir",
        net,
        net.feature_dim,
        LabelBins.from_labels(y, edges=EDGES),
        decoder=decoder,
        **{"reconstruction.weight": 1.0},
    )
    loss, parts = model.loss(x, y)
    assert "reconstruction" in parts and loss.isfinite()


def test_pixels_without_a_label_do_not_count() -> None:
    """Losses, gradients, statistics and validation are those of the other pixels, whatever NaN hides."""
    x, y = scene()
    hidden = y.clone()
    hidden[:, :5] = torch.nan
    net = small()
    bins = LabelBins.from_labels(y, edges=EDGES)
    model = build_model("vir", net, net.feature_dim, bins).eval()
    losses, whole = model.row_losses(x, hidden), model.row_losses(x, y)
    known = hidden.isfinite().reshape(-1)
    for name, value in whole.items():
        torch.testing.assert_close(losses[name], torch.where(known, value, 0.0))
    model.train().row_losses(x, hidden)
    model.end_epoch()
    count = torch.bincount(bins.index(y.reshape(-1))[known], minlength=len(bins))
    assert torch.equal(model.tails[0].smoother.stats.count, count)  # type: ignore[union-attr]
    config = TrainConfig(epochs=1, batch_size=3, accelerator="cpu", monitor="balanced_mse")
    assert np.isfinite(fit(model, (x, hidden), (x, hidden), config).best_score)
