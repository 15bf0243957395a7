"""VIR and its ablations as one network: objective, prediction, shapes, epochs and state."""

from __future__ import annotations

import copy
import inspect
import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

import tailwise
from tailwise.distributions.members import Mixture
from tailwise.labels.bins import LabelBins
from tailwise.methods import build_model
from tailwise.networks.network import Network, redraw
from tailwise.networks.vir import PRESETS, VIR
from tests.networks.small_models import (
    MODES,
    PRIOR,
    Array,
    Stats,
    build,
    data,
    gaussian_kernel,
    loop_recolor,
    loop_smooth,
    loop_statistics,
    npy,
    one_epoch,
    tail,
    train,
)


def sampled(samples: int) -> dict[str, Any]:
    """Options that average over samples of the latent, or none."""
    return {"perturbation": "latent", "perturbation.samples": samples} if samples else {}


class ByHand:
    """VIR of the specification for a model of `build`, with statistics of the given rows if any."""

    def __init__(self, model: Network, x: Tensor | None = None, y: Tensor | None = None) -> None:
        self.model, self.tail = model, tail(model)
        labels = model.bins
        self.centers, self.widths, self.counts = (labels.centers, np.diff(labels.edges), labels.counts)
        shares = self.counts / self.counts.sum()
        self.location = float(shares @ self.centers)
        self.scale = math.sqrt(float(shares @ (self.centers - self.location) ** 2))
        # VIR:weight with p~ from a Gaussian of bandwidth 2 over 5 bins
        size = len(labels)
        near = gaussian_kernel(2.0, 2)
        kernel = np.array([[near(i, j) for j in range(size)] for i in range(size)])
        density = kernel @ shares / sum(math.exp(-(d**2) / 8) for d in range(-2, 3))
        w = density**-0.5
        weights = model.method.weights
        printed = weights is not None and weights.options["scale"] == "density"
        self.w, self.usual = (w, shares @ w) if printed else (w / (shares @ w), 1.0)
        self.stats: Stats | None = None
        if x is not None and y is not None:
            self.stats = loop_statistics(*self.latent(x), self.index(npy(y)), size)
            self.smooth = loop_smooth(self.stats, gaussian_kernel(2.0, 2))

    def index(self, y: Array) -> NDArray[np.int64]:
        return np.array([int(np.argmin(np.abs(self.centers - v))) for v in y])

    def latent(self, x: Tensor) -> tuple[Array, Array]:
        def linear(layer: nn.Linear, rows: Array) -> Array:
            return rows @ npy(layer.weight).T + npy(layer.bias)

        features = linear(self.model.backbone, npy(x))
        var = np.log1p(np.exp(linear(self.tail.latent.var, features))) + 1e-6
        return linear(self.tail.latent.mean, features), var

    def recolor(self, mean: Array, var: Array, index: NDArray[np.int64]) -> tuple[Array, Array]:
        if self.stats is None:
            return mean, var
        return loop_recolor(mean, var, index, self.stats, self.smooth, (0.1, 10.0))

    def head(self, z: Array, w: Array | float = 1.0) -> tuple[Array, ...]:
        layer = self.tail.head.linear
        raw_n, psi, raw_phi = (z @ npy(layer.weight).T + npy(layer.bias)).T
        n, phi = (np.log1p(np.exp(0.5 * raw)) / 0.5 + 1e-6 for raw in (raw_n, raw_phi))
        n = 2 + n
        gamma0, nu0, alpha0, beta0 = PRIOR
        nu = nu0 + w * n
        gamma = (gamma0 * nu0 + w * n * psi) / nu
        return gamma, nu, alpha0 + w * n / 2, beta0 + gamma0**2 * nu0 / 2 + phi

    def pdf(self, y: Array, gamma: Array, nu: Array, alpha: Array, beta: Array) -> Array:
        return stats.t.pdf(y, 2 * alpha, gamma, np.sqrt(beta * (1 + nu) / (nu * alpha)))

    def predict(self, x: Tensor, mode: str) -> tuple[Array, Array]:
        """Mean and variance in label units, one row, bin and latent sample at a time.

        A row whose first guess lies within 2% of a bin's edge is NaN: rounding decides its bin.
        """
        mean, var = self.latent(x)
        noise = np.zeros((1, mean.shape[1])) if self.tail.noise is None else npy(self.tail.noise)
        recolors = self.tail.smoother is not None and self.tail.smoother.at_inference

        def members(i: int, b: int | None) -> list[tuple[float, ...]]:
            m, v = mean[i : i + 1], var[i : i + 1]
            w = self.usual if self.tail.weighs_counts else 1.0
            if b is not None:
                w = self.w[b] if self.tail.weighs_counts else 1.0
                if recolors:
                    m, v = self.recolor(m, v, np.array([b]))
            return [tuple(p.item() for p in self.head(m + np.sqrt(v) * eps, w)) for eps in noise]

        means, variances = [], []
        for i in range(len(mean)):
            first = members(i, None)
            guess = float(np.mean([m[0] for m in first])) * self.scale + self.location
            parts = [(1.0, m) for m in first]
            if mode == "self":
                parts = [(1.0, m) for m in members(i, int(self.index(np.array([guess]))[0]))]
            elif mode == "marginal":
                mass = [
                    self.widths[b]
                    * np.mean([self.pdf((self.centers[b] - self.location) / self.scale, *m) for m in first])
                    for b in range(len(self.centers))
                ]
                top = sorted(range(len(mass)), key=lambda b: -mass[b])[:8]
                parts = [(mass[b], m) for b in top for m in members(i, b)]
            total = sum(share for share, _ in parts)
            mu = sum(share * m[0] for share, m in parts) / total
            second = 0.0
            for share, (gamma, nu, alpha, beta) in parts:
                own = beta / (alpha - 1) * (1 + 1 / nu)
                second += share / total * (own + (gamma - mu) ** 2)
            if mode == "self" and np.abs(guess - self.model.bins.edges).min() < 0.02:
                mu = math.nan
            means.append(mu * self.scale + self.location)
            variances.append(second * self.scale**2)
        return np.array(means), np.array(variances)


@pytest.mark.parametrize("on", [None, "loss", "count", "both"])
@pytest.mark.parametrize(("noisy", "averaged"), [(False, False), (True, False), (True, True)])
def test_the_objective_is_the_sum_of_its_parts_by_hand(on: str | None, noisy: bool, averaged: bool) -> None:
    x, y = data()
    decoder = nn.Linear(4, 3)
    model = build(
        y,
        preset="paper",
        decoder=decoder,
        **{
            "weights": on and {"on": on},
            "evidence.weight": 0.3,
            "kl": {"weight": 0.2, "mean": averaged},
            "reconstruction": {"weight": 0.7, "mean": averaged},
        },
    )
    one_epoch(model, x, y).train(noisy)
    hand = ByHand(model, x, y)
    torch.manual_seed(9)
    loss, parts = model.loss(x, y)
    torch.manual_seed(9)
    noise = npy(torch.randn(60, 4, dtype=torch.float64)) if noisy else 0.0

    index = hand.index(npy(y))
    mean, var = hand.recolor(*hand.latent(x), index)
    z = mean + np.sqrt(var) * noise
    w = hand.w[index]
    gamma, nu, alpha, beta = hand.head(z, w if on in ("count", "both") else 1.0)
    target = (npy(y) - hand.location) / hand.scale
    outer = w if on in ("loss", "both") else np.ones(60)
    decoded = z @ npy(decoder.weight).T + npy(decoder.bias)
    over = np.mean if averaged else np.sum
    want = {
        "nll": outer * -np.log(hand.pdf(target, gamma, nu, alpha, beta)),
        "evidence": outer * 0.3 * (nu + 2 * alpha) * np.abs(target - gamma),
        "kl": 0.2 * over((var + mean**2 - 1 - np.log(var)) / 2, axis=1),
        "reconstruction": 0.7 * over((npy(x) - decoded) ** 2 / 2, axis=1),
    }
    assert set(parts) == set(want)
    for name, value in want.items():
        assert parts[name].item() == pytest.approx(value.mean(), rel=1e-5), name
        assert not parts[name].requires_grad
    assert loss.item() == pytest.approx(sum(v.mean() for v in want.values()), rel=1e-5)
    assert loss.requires_grad

    weight = np.linspace(0, 3, 60)
    torch.manual_seed(9)
    weighted, _ = model.loss(x, y, torch.as_tensor(weight))
    assert weighted.item() == pytest.approx((weight * sum(want.values())).mean(), rel=1e-5)


@pytest.mark.parametrize("make", [VIR, partial(build_model, "vir-paper")])
def test_a_method_that_reconstructs_warns_without_a_decoder_unless_told(make: Callable[..., Network]) -> None:
    x, y = data()
    bins, paper = LabelBins.from_labels(y), {"preset": "paper"} if make is VIR else {}
    with pytest.warns(UserWarning, match="no decoder: give VIR or build_model decoder="):
        model = make(nn.Linear(3, 5), 5, bins, **paper)
    assert "reconstruction" not in model.loss(x.float(), y)[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(nn.Linear(3, 5), 5, bins, **paper, reconstruction=None)
        whole = make(nn.Linear(3, 5), 5, bins, **paper, decoder=nn.Linear(5, 3))
    assert "reconstruction" in whole.loss(x.float(), y)[1]
    whole.drop_decoders()
    assert "reconstruction" not in whole.loss(x.float(), y)[1]


class Objective(nn.Module):
    def __init__(self, model: Network) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        torch.manual_seed(3)
        return self.model.loss(x, y)[0]


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_gradients_of_the_loss_equal_finite_differences(preset: str) -> None:
    x, y = data(4)
    decoder = nn.Linear(2, 3)
    model = build(y, preset=preset, decoder=decoder, **{"latent.dim": 2}).train()
    one_epoch(model, x, y)
    step = Objective(model)
    names = [name for name, _ in step.named_parameters()]

    def function(inputs: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(step, dict(zip(names, values, strict=True)), (inputs, y))

    x.requires_grad_()
    assert torch.autograd.gradcheck(function, (x, *step.parameters()), atol=1e-5, fast_mode=True)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("recolor", [False, True])
@pytest.mark.parametrize(("samples", "on"), [(3, "both"), (0, "loss")])
def test_predictions_by_hand(mode: str, recolor: bool, samples: int, on: str) -> None:
    x, y = data()
    smoothing = {"at_inference": recolor, "momentum": 0.0}
    model = build(y, preset="paper", weights={"on": on}, smoothing=smoothing, **sampled(samples))
    train(model, x, y, epochs=2)
    model.end_epoch()
    one_epoch(model, x, y).eval()
    new = x[:12] * 1.5
    got = model(new, mode)
    mean, variance = ByHand(model, x, y).predict(new, mode)
    clear = np.isfinite(mean)
    assert clear.sum() >= 9
    np.testing.assert_allclose(npy(got.mean)[clear], mean[clear], rtol=1e-5)
    np.testing.assert_allclose(npy(got.variance)[clear], variance[clear], rtol=1e-4)
    assert got.mean.dtype == torch.float64
    assert isinstance(got, Mixture) == (mode == "marginal" or samples > 0)
    # the mode of the method is the default
    chosen = build(y, inference=mode).eval()
    assert torch.equal(chosen(new).mean, chosen(new, mode).mean)


@pytest.mark.parametrize("mode", MODES)
def test_predictions_never_read_labels(mode: str) -> None:
    assert not {"y", "label", "labels", "target"} & set(inspect.signature(Network.forward).parameters)
    x, y = data()
    model = build(y, **{"smoothing.at_inference": True})
    train(model, x, y, epochs=3)
    model.end_epoch()
    model.eval()
    want = model(x, mode)
    state = copy.deepcopy(model.state_dict())
    for seed in range(2):
        model.loss(x, y[torch.randperm(60, generator=torch.Generator().manual_seed(seed))])
        got = model(x, mode)
        assert torch.equal(got.mean, want.mean) and torch.equal(got.variance, want.variance)
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name
    # Labels seen since the last epoch ended have not taken effect either.
    model.train()
    model.loss(x, torch.zeros_like(y))
    model.eval()
    assert torch.equal(model(x, mode).mean, want.mean)


class Dense(nn.Module):
    """Images (N, 3, H, W) to features (N, H, W, 5), pixel by pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.movedim(1, -1))


@pytest.mark.parametrize("mode", MODES)
def test_dense_features_are_rows_of_pixels(mode: str) -> None:
    x, y = data()
    images, maps = x.reshape(5, 3, 4, 3).movedim(-1, 1), y.reshape(5, 3, 4)
    options = {"smoothing.at_inference": True, **sampled(2)}
    flat, dense = build(y, **options), build(y, **options)
    dense.backbones[0] = Dense().double()
    dense.backbone.linear.load_state_dict(flat.backbone.state_dict())
    for model, inputs, labels in ((flat, x, y), (dense, images, maps)):
        one_epoch(model, inputs, labels)
        model.eval()
    weight = torch.linspace(0, 2, 60).double()
    one = flat.loss(x, y, weight)[0].item()
    assert dense.loss(images, maps, weight.reshape(5, 3, 4))[0].item() == pytest.approx(one)
    got = dense(images, mode)
    assert got.mean.shape == (5, 3, 4)
    torch.testing.assert_close(got.mean.flatten(), flat(x, mode).mean)
    torch.testing.assert_close(got.variance.flatten(), flat(x, mode).variance)


def test_a_wrong_feature_dim_is_named() -> None:
    x, y = data()
    model = VIR(nn.Linear(3, 5), 6, LabelBins.from_labels(y)).double()
    with pytest.raises(ValueError, match=r"features of shape \(60, 5\).*built for \(..., 6\): feature_dim"):
        model.loss(x, y)


def test_bfloat16_autocast_keeps_statistics_in_float32() -> None:
    x, y = data()
    model = build(y).float().train()
    x = x.float()
    with torch.autocast("cpu", torch.bfloat16):
        features = model.backbone(x)
        loss, _ = model.loss(x, y)
        prediction = model.eval()(x)
    assert features.dtype == torch.bfloat16
    assert loss.dtype == torch.float32 and torch.isfinite(loss)
    assert prediction.mean.dtype == torch.float64
    model.end_epoch()
    z, smoother = npy(tail(model).latent(features.float())[0]), tail(model).smoother
    assert smoother is not None
    for b in sorted(set(y.tolist())):
        mean = z[npy(y) == b].mean(0)
        np.testing.assert_allclose(npy(smoother.stats.mu_mean[int(b)]), mean, rtol=1e-5, atol=1e-6)
    loss.backward()


def test_an_epoch_ends_by_itself_after_as_many_rows_as_the_bins_counted() -> None:
    x, y = data()
    model = build(y).train()
    smoother = tail(model).smoother
    assert smoother is not None
    for start in (0, 20, 40):
        assert not smoother.stats.count.any()
        model.loss(x[start : start + 20], y[start : start + 20])
    assert not smoother.stats.count.any()  # takes effect when the next epoch starts
    model.loss(x[:20], y[:20])
    np.testing.assert_array_equal(smoother.stats.count, model.bins.counts)
    assert smoother.sums[:, 0].sum() == 20
    model.end_epoch()
    kept = smoother.stats.mu_mean.clone()
    model.end_epoch()  # nothing seen since: nothing changes
    assert torch.equal(smoother.stats.mu_mean, kept)
    model.eval().loss(x, y)
    assert smoother.sums[:, 0].sum() == 0  # evaluation collects nothing


def test_a_loop_that_says_when_epochs_end_may_have_as_many_rows_as_it_likes() -> None:
    x, y = data()
    model = build(y).train()
    smoother = tail(model).smoother
    assert smoother is not None
    model.begin_epoch(0.0)
    for _ in range(3):
        model.loss(x, y)
    assert not smoother.stats.count.any()
    model.end_epoch()
    np.testing.assert_array_equal(smoother.stats.count, 3 * model.bins.counts)
    model.begin_epoch(0.5)
    model.load_state_dict(copy.deepcopy(model.state_dict()))  # a new start: nothing is said any more
    for _ in range(2):
        model.loss(x, y)
    np.testing.assert_array_equal(smoother.stats.count, model.bins.counts)


def test_redrawing_leaves_frozen_weights_alone_and_knows_attention() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.vectors = nn.Embedding.from_pretrained(torch.eye(4))
            self.attention = nn.MultiheadAttention(4, 2)

    network = Words()
    before = network.attention.in_proj_weight.clone()
    redraw(network)
    assert torch.equal(network.vectors.weight, torch.eye(4))
    assert not torch.equal(network.attention.in_proj_weight, before)


@pytest.mark.parametrize(
    "other",
    [np.arange(1, 14) - 0.5, np.linspace(-0.5, 11.5, 25), np.arange(13) - 0.5 + 1e-4],
    ids=["moved", "finer", "a little"],
)
@pytest.mark.parametrize("offset", [0.0, -1e9])
def test_a_state_of_other_bins_is_refused(other: Array, offset: float) -> None:
    y = np.arange(12.0) + offset

    def model(edges: Array) -> VIR:
        return VIR(nn.Linear(3, 5), 5, LabelBins.from_labels(y, edges=edges + offset))

    state = model(np.arange(13) - 0.5).state_dict()
    model(np.arange(13) - 0.5).load_state_dict(state)
    with pytest.raises(ValueError, match="bins"):
        model(other).load_state_dict(state)


@pytest.mark.parametrize("several", [list, tuple])
def test_vir_has_one_target_and_says_what_takes_more(several: Callable[..., Any]) -> None:
    _, y = data()
    bins = LabelBins.from_labels(y)
    with pytest.raises(TypeError, match=r'one target.* a list of them to tailwise.build_model\("vir", ...\)'):
        VIR(nn.Linear(3, 5), 5, several([bins, bins]))
    model = tailwise.build_model("vir", nn.Linear(3, 5), 5, [bins, bins])
    assert model(torch.zeros(4, 3)).shape == (4, 2), "what the message tells to do works"


def test_labels_in_place_of_bins_are_told_how_to_become_some() -> None:
    _, y = data()
    with pytest.raises(TypeError, match=r"not Tensor: make them with LabelBins.from_labels\(y\)"):
        VIR(nn.Linear(3, 5), 5, y)  # type: ignore[arg-type]
