"""Members and targets, on a backbone of their own or a shared one, against networks evaluated one by one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tailwise.distributions.members import Distribution, Mixture, Normal
from tailwise.labels.bins import LabelBins
from tailwise.methods import available_methods, build_model
from tailwise.networks import tail as tail_module
from tailwise.networks.backbones import MLP, TabM
from tailwise.networks.heads import HEADS, PointHead
from tailwise.networks.network import Network
from tailwise.networks.parts import Method, Part
from tailwise.networks.tail import INFERENCES
from tests.methods.trained_methods import table
from tests.networks.small_models import tail

MEMBERS, WIDTH = 3, 6
each_method = pytest.mark.parametrize("name", available_methods())


def shared(name: str, y: Tensor, **options: Any) -> Network:
    """A method on a TabM with nothing random but its start."""
    torch.manual_seed(1)
    options.setdefault("members", 1)
    backbone = TabM(4, hidden=(8, WIDTH), members=MEMBERS, dropout=0.0)
    return build_model(name, backbone, WIDTH, LabelBins.from_labels(y), **options)


def alone(model: Network, k: int) -> Network:
    """Member k as a network of its own, on features that the backbone has already made."""
    copied = Network(nn.Identity(), WIDTH, model.bins, model.method)
    weights = dict(model.named_parameters())
    for label, parameter in copied.named_parameters():
        common = label.split(".")[2] in ("losses", "decoder")  # what members share
        parameter.data = (weights[label].data if common else weights[label].data[k]).clone()
    return copied


def mixed(predictions: list[Distribution], points: bool) -> Distribution:
    """What an ensemble of these would predict, put together in another way than the model does."""
    if points and isinstance(predictions[0], Normal):
        return Normal(sum(p.mean for p in predictions) / len(predictions), predictions[0].variance)
    if isinstance(predictions[0], Mixture):
        parts = [p.components[s] for p in predictions for s in range(len(p.weights))]
        return Mixture(parts, torch.cat([p.weights for p in predictions]))
    return Mixture(predictions)


def same(ours: Distribution, theirs: Distribution, y: Tensor) -> None:
    for figure in ("mean", "aleatoric", "epistemic"):
        torch.testing.assert_close(getattr(ours, figure), getattr(theirs, figure), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.nll(y), theirs.nll(y), rtol=1e-4, atol=1e-5)


@each_method
def test_members_are_networks_of_their_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses, gradients, statistics and predictions equal those of a loop over plain models."""
    # One order of draws would not be another.
    monkeypatch.setattr(tail_module, "normal_like", torch.zeros_like)
    x, y = table(60)
    model = shared(name, y).train()
    members = [alone(model, k).train() for k in range(MEMBERS)]
    for _ in range(2):
        model.begin_epoch(0.0)
        for start in (0, 30):
            rows = slice(start, start + 30)
            model.zero_grad()
            loss, parts = model.loss(x[rows], y[rows])
            loss.backward()
            features = model.backbone(x[rows])
            each = [member.loss(features[:, k], y[rows]) for k, member in enumerate(members)]
            wanted = torch.stack([own for own, _ in each]).mean()
            torch.testing.assert_close(loss, wanted, rtol=1e-5, atol=1e-6)
            assert set(parts) == set(each[0][1])
            ours = [p.grad.clone() for p in model.backbone.parameters()]
            theirs = torch.autograd.grad(wanted, list(model.backbone.parameters()))
            for found, expected in zip(ours, theirs, strict=True):
                torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-6)
        model.end_epoch()
        for member in members:
            member.end_epoch()
    model.eval()
    features = model.backbone(x)
    points = isinstance(tail(model).head, PointHead)
    for inference in INFERENCES:
        each = [member.eval()(features[:, k], inference) for k, member in enumerate(members)]
        same(model(x, inference), mixed(each, points), y)


def test_what_members_cannot_do_is_said() -> None:
    _, y = table(60)
    bins = LabelBins.from_labels(y)

    class Wrong(nn.Linear):
        members = 7

    model = build_model("vanilla", Wrong(4, WIDTH), WIDTH, bins)
    with pytest.raises(ValueError, match=r"members=7 must return features of shape \(rows, 7, D\)"):
        model(torch.zeros(5, 4))
    with pytest.raises(ValueError, match="members and layers must be at least 1"):
        TabM(4, members=0)


def test_a_head_with_other_weights_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Scaled(PointHead):
        def __init__(self, dim: int, bins: object) -> None:
            super().__init__(dim, bins)  # type: ignore[arg-type]
            self.factor = nn.Parameter(torch.ones(1))

    monkeypatch.setitem(HEADS, "scaled", Scaled)
    with pytest.raises(ValueError, match="Scaled has weights outside linear layers"):
        Network(TabM(4), 64, LabelBins.from_labels([0.0, 1.0]), Method(head=Part("scaled")))


# -- members and targets with networks of their own -----------------------------------------------


@pytest.mark.parametrize("name", ["vir", "ensemble", "infer-noise", "ranksim"])
def test_targets_are_trained_as_alone_on_features_of_one_backbone(name: str) -> None:
    """The loss is the mean over targets, each standardised by its own bins."""
    x, y = table(60)
    both = torch.stack([y, 1000 * x[:, 1].double() - 5], dim=1)
    bins = [LabelBins.from_labels(labels) for labels in both.unbind(1)]
    torch.manual_seed(0)
    model = build_model(name, MLP(4, (16, 8), 0.0), 8, bins).eval()
    singles = [build_model(name, nn.Identity(), 8, own) for own in bins]
    members = len(model.backbones)
    for t, single in enumerate(singles):
        for k, mine in enumerate(single.eval().tails):
            mine.load_state_dict(model.tails[2 * k + t].state_dict())
            single.backbones[k] = copy.deepcopy(model.backbones[k])
    loss, prediction = model.loss(x, both)[0], model(x)
    wanted = torch.stack([single.loss(x, both[:, t])[0] for t, single in enumerate(singles)]).mean()
    torch.testing.assert_close(loss, wanted)
    assert prediction.shape == both.shape and members == model.method.members
    for t, single in enumerate(singles):
        torch.testing.assert_close(prediction.mean[:, t], single(x).mean)
        torch.testing.assert_close(prediction.variance[:, t], single(x).variance)
    with pytest.raises(ValueError, match=r"y has shape \(60,\), expected \(rows, 2\)"):
        model.loss(x, y)


# -- against the package of TabM ------------------------------------------------------------------


def test_tabm_is_that_of_its_authors() -> None:
    """Same features, predictions, loss and gradients as the package `tabm`, for copied weights."""
    import tabm as package

    theirs = package.TabM.make(n_num_features=4, d_out=1, n_blocks=2, d_block=WIDTH, k=MEMBERS, dropout=0.0)
    x, y = table(60)
    model = build_model(
        "vanilla", TabM(4, (WIDTH, WIDTH), MEMBERS, dropout=0.0), WIDTH, LabelBins.from_labels(y)
    )
    ours, head = model.backbone, tail(model).head.linear
    with torch.no_grad():
        for i, (layer, *_) in enumerate(theirs.backbone.blocks):
            for scale in (layer.r, layer.s, layer.bias):
                scale.add_(0.3 * torch.randn(scale.shape))  # they start as ones
            ours.shared[i].weight.copy_(layer.weight)
            ours.scale_in[i].copy_(layer.r)
            ours.scale_out[i].copy_(layer.s)
            ours.bias[i].copy_(layer.bias)
        head.weight.copy_(theirs.output.weight.mT)
        head.bias.copy_(theirs.output.bias)
    torch.testing.assert_close(ours(x), theirs.backbone(theirs.ensemble_view(x)), rtol=1e-5, atol=1e-6)
    each = theirs(x).squeeze(-1)  # (N, members)
    location, scale = model.bins.location, model.bins.scale
    torch.testing.assert_close(model(x).mean, each.mean(1).double() * scale + location, rtol=1e-5, atol=1e-5)
    loss, _ = model.loss(x, y)
    wanted = ((each - tail(model).standardize(y).unsqueeze(1)) ** 2).mean()
    torch.testing.assert_close(loss, wanted)
    loss.backward()
    wanted.backward()
    for i, (layer, *_) in enumerate(theirs.backbone.blocks):
        torch.testing.assert_close(ours.shared[i].weight.grad, layer.weight.grad, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(ours.scale_in[i].grad, layer.r.grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(head.weight.grad, theirs.output.weight.grad.mT, rtol=1e-4, atol=1e-6)
