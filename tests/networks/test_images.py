"""Networks for pictures, against torchvision's own network."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tailwise.labels.bins import LabelBins
from tailwise.methods import build_model
from tailwise.networks.images import ImageDecoder, Pixels, make_image_backbone
from tailwise.networks.network import fresh_copy
from tailwise.training.loop import TrainConfig, fit, predict


def _pictures(rows: int = 4, size: int = 32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (rows, size, size, 3), dtype=torch.uint8, generator=generator)


def test_bytes_become_normalised_floats_with_channels_last() -> None:
    x = _pictures(2, 8)
    floats = Pixels()(x)
    expected = ((x.double() / 255) - 0.5) / 0.5
    assert floats.shape == (2, 3, 8, 8) and floats.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(floats.double().permute(0, 2, 3, 1), expected, rtol=0, atol=1e-6)
    assert torch.equal(Pixels()(floats), floats)


def test_features_are_those_of_torchvisions_network(torchvision: ModuleType, tmp_path: Path) -> None:
    original = torchvision.models.resnet18(weights=None).eval()
    torch.save(original.state_dict(), tmp_path / "weights.pth")
    save_file(original.state_dict(), tmp_path / "weights.safetensors")
    x = _pictures()
    original.fc = torch.nn.Identity()
    expected = original(Pixels()(x))
    net = make_image_backbone("resnet18", weights=tmp_path / "weights.safetensors").eval()
    torch.testing.assert_close(net(x), expected, rtol=1e-4, atol=1e-4)
    net = make_image_backbone("resnet18", weights=tmp_path / "weights.pth").eval()
    assert [tuple(h.shape) for h in net.stages(x)] == [
        (4, 64, 8, 8), (4, 128, 4, 4), (4, 256, 2, 2), (4, 512, 1, 1),
    ]  # fmt: skip
    torch.testing.assert_close(fresh_copy(net)(x), expected, rtol=1e-4, atol=1e-4)


def test_wrong_names_and_files_are_explained(torchvision: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="did you mean 'resnet18'"):
        make_image_backbone("resnet19")
    with pytest.raises(ValueError, match="'wieghts'; did you mean 'weights'"):
        make_image_backbone("resnet18", wieghts="x")
    with pytest.raises(FileNotFoundError, match=r"nothing\.pth do not exist"):
        make_image_backbone("resnet18", weights=tmp_path / "nothing.pth")
    torch.save({"conv1.weight": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match=r"other\.pth has no weights of this network"):
        make_image_backbone("resnet18", weights=tmp_path / "other.pth")
    with pytest.raises(ValueError, match="multiple of 8"):
        ImageDecoder(4, size=20)


def test_a_missing_torchvision_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    with pytest.raises(ImportError, match=r"tailwise\[images\]"):
        make_image_backbone("resnet18")


def test_a_torchvision_of_another_torch_is_told_how_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise RuntimeError("operator torchvision::nms does not exist")

    other = ModuleType("torchvision.models")
    other.__getattr__ = fail  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "torchvision.models", other)
    with pytest.raises(ImportError, match=r"nms does not exist\): .* --force-reinstall torch torchvision"):
        make_image_backbone("resnet18")


def test_vir_trains_on_pictures_with_a_decoder(torchvision: ModuleType) -> None:
    rng = np.random.default_rng(0)
    x, y = _pictures(24, 32), torch.from_numpy(rng.integers(1, 5, 24).astype(np.float64))
    backbone = make_image_backbone("resnet18")
    decoder = ImageDecoder(512, width=8)
    model = build_model("vir", backbone, 512, LabelBins.from_labels(y), decoder=decoder)
    config = TrainConfig(epochs=1, batch_size=12, accelerator="cpu")
    result = fit(model, (x, y), config=config)
    assert result.history[0]["loss/reconstruction"] > 0
    assert predict(model, x).mean.isfinite().all()
