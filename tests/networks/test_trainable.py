"""The contract between the training loop and a model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tailwise.core.labels import LabelBins
from tailwise.methods import build_model
from tailwise.networks.trainable import Trainable
from tests.networks.small_models import build, data


def test_a_model_must_have_every_method_that_the_loop_calls() -> None:
    class Half(Trainable):
        def row_losses(self, x: Any, y: Tensor) -> dict[str, Tensor]:
            return {"squared": (x - y) ** 2}

        def end_epoch(self) -> None: ...

    missing = "begin_epoch.*collect_statistics.*forward"
    with pytest.raises(TypeError, match=missing):
        Half()  # type: ignore[abstract]


def test_the_parts_shown_add_up_to_the_loss_under_sample_weights() -> None:
    x, y = data()
    model = build(y).eval()
    loss, parts = model.loss(x, y, torch.linspace(0, 3, 60).double())
    assert sum(v.item() for v in parts.values()) == pytest.approx(loss.item(), rel=1e-6)


def test_weights_of_other_rows_are_refused() -> None:
    x, y = data()
    model = build(y).eval()
    for wrong in (30, 59):  # 30 divides the number of rows
        with pytest.raises(
            ValueError, match=rf"sample_weight has shape \({wrong},\), but labels have \(60,\)"
        ):
            model.loss(x, y, torch.ones(wrong))
    assert model.loss(x, y, torch.ones(60, 1))[0].isfinite()


class Measured(nn.Linear):
    """A backbone that measures its rows; as a layer of another backbone it is not asked."""

    padded_inputs = ("words",)

    def row_lengths(self, x: Any) -> Tensor:
        return (x != 0).sum(-1)


@pytest.mark.parametrize("bins", [1, 2])
@pytest.mark.parametrize("members", [1, 2])
def test_lengths_come_from_the_backbone_that_takes_the_input(bins: int, members: int) -> None:
    labels, x = LabelBins.from_labels([0.0, 1.0, 2.0]), torch.tensor([[1.0, 2.0, 0.0], [3.0, 0.0, 0.0]])
    targets = labels if bins == 1 else [labels, labels]
    model = build_model("vanilla", Measured(3, 4), 4, targets, members=members)
    lengths = model.row_lengths(x)
    assert lengths is not None and lengths.tolist() == [2, 1]
    assert model.padded_inputs == ("words",)
    inside = build_model("vanilla", nn.Sequential(Measured(3, 4)), 4, targets, members=members)
    assert inside.row_lengths(x) is None and inside.padded_inputs == ()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch looks at it while tracing
@pytest.mark.parametrize("name", ["vir", "lds-fds-der", "ensemble"])
def test_compiled_losses_are_the_same_losses(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced as one piece without a break; the code it would generate is left out."""
    compiled: list[Any] = []

    def tracing(function: Any, dynamic: bool) -> Any:
        compiled.append(function)
        return original(function, dynamic=dynamic, backend="aot_eager", fullgraph=True)

    original = torch.compile
    x, y = data()
    members = 2 if name == "ensemble" else 1
    model = build_model(name, nn.Linear(3, 5), 5, LabelBins.from_labels(y), members=members).double()
    model.loss(x, y)
    model.end_epoch()
    torch.manual_seed(0)
    usual, _ = model.loss(x, y)
    monkeypatch.setattr(torch, "compile", tracing)
    with model.compiled():
        torch.manual_seed(0)
        found, _ = model.loss(x, y)
        found.backward()
    torch.testing.assert_close(found, usual)
    assert len(compiled) == members
    model.loss(x, y)
    assert not any("latent_losses" in vars(network) for network in model.modules())
