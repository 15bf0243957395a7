"""VIR and its ablations as one network: objective, prediction, shapes, epochs and state."""

from __future__ import annotations

import copy
import inspect
import math
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

from tailwise.distributions.members import NIG, Mixture
from tailwise.labels.bins import LabelBins
from tailwise.networks.backbones import TableDecoder
from tailwise.networks.network import Network, redraw
from tailwise.networks.parts import Method, Part
from tailwise.networks.vir import PRESETS, VIR
from tests.networks.small_models import MODES, PRIOR, Array, build, data, npy, one_epoch, tail, train


def sampled(samples: int) -> dict[str, Any]:
    """Options that average over samples of the latent, or none."""
    return {"perturbation": "latent", "perturbation.samples": samples} if samples else {}


class ByHand:
    """VIR of the specification for a model of `build`, with statistics of the given rows if any."""

    def __init__(self, model: Network, x: Tensor | None = None, y: Tensor | None = None) -> None:
        self.model, self.tail = model, tail(model)
        labels = model.bins
        self.centers, self.widths, self.counts = (
            labels.centers,
            np.diff(labels.edges),
            labels.counts,
        )
        shares = self.counts / self.counts.sum()
        self.location = float(shares @ self.centers)
        self.scale = math.sqrt(float(shares @ (self.centers - self.location) ** 2))
        # VIR:weight with p~ from a Gaussian of bandwidth 2 over 5 bins
        size = len(labels)
        kernel = np.array(
            [[math.exp(-((i - j) ** 2) / 8) * (abs(i - j) <= 2) for j in range(size)] for i in range(size)]
        )
        density = kernel @ shares
        w = density**-0.5
        self.w = w / (shares @ w)
        self.stats: dict[int, tuple[Array, Array, Array]] = {}
        self.smooth: dict[int, tuple[Array, Array, Array]] = {}
        if x is not None and y is not None:
            mean, var = self.latent(x)
            index = self.index(npy(y))
            for b in sorted(set(index)):
                m, v = mean[index == b], var[index == b]
                n = len(m)
                mu, mu_var = m.mean(0), v.sum(0) / n**2
                cov = (v + m**2).mean(0) - (mu_var + mu**2)
                self.stats[b] = mu, mu_var, np.maximum(cov, 1e-8)
            for b in self.stats:
                total = sum(kernel[b, c] for c in self.stats)
                k = {c: kernel[b, c] / total for c in self.stats}
                self.smooth[b] = (
                    sum(k[c] * self.stats[c][0] for c in k),
                    sum(k[c] ** 2 * self.stats[c][1] for c in k),
                    sum(k[c] * self.stats[c][2] for c in k),
                )

    def index(self, y: Array) -> NDArray[np.int64]:
        return np.array([int(np.argmin(np.abs(self.centers - v))) for v in y])

    def latent(self, x: Tensor) -> tuple[Array, Array]:
        def linear(layer: nn.Linear, rows: Array) -> Array:
            return rows @ npy(layer.weight).T + npy(layer.bias)

        features = linear(self.model.backbone, npy(x))
        var = np.log1p(np.exp(linear(self.tail.latent.var, features))) + 1e-6
        return linear(self.tail.latent.mean, features), var

    def recolor(self, mean: Array, var: Array, index: NDArray[np.int64]) -> tuple[Array, Array]:
        mean, var = mean.copy(), var.copy()
        for i, b in enumerate(index):
            if b in self.stats:
                (mu, mu_var, cov), (mu_s, mu_var_s, cov_s) = self.stats[b], self.smooth[b]
                if self.counts[b] == 1:
                    continue
                r = np.sqrt(np.clip(cov_s / cov, 0.1, 10))
                mean[i], var[i] = (mean[i] - mu) * r + mu_s, (var[i] + mu_var) * r + mu_var_s
        return mean, var

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
            m, v, w = mean[i : i + 1], var[i : i + 1], 1.0
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


def test_weights_that_are_all_one_are_no_weights() -> None:
    x, y = data()
    losses = []
    for on in (None, "loss", "count", "both"):
        options = {"weights": on and {"on": on, "power": 0.0}, "smoothing.at_inference": False}
        model = build(y, preset="paper", **options)
        torch.manual_seed(1)
        losses.append(one_epoch(model, x, y).loss(x, y)[0].item())
        model.eval()
        torch.testing.assert_close(model(x, "self").variance, model(x, "plain").variance)
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-12)


def test_an_identity_kernel_leaves_latent_means_alone() -> None:
    x, y = data()
    model = one_epoch(build(y, smoothing={"kernel": None, "at_inference": True}), x, y).eval()
    torch.testing.assert_close(model(x, "self").mean, build(y, smoothing=None).eval()(x, "self").mean)


def test_feature_distribution_smoothing_by_hand() -> None:
    x, y = data()
    torch.manual_seed(0)
    method = Method(smoothing=Part("statistics"), losses=(Part("absolute"),))
    model = Network(nn.Linear(3, 5), 5, LabelBins.from_labels(y), method).double()
    one_epoch(model, x, y)
    loss, parts = model.loss(x, y)
    assert set(parts) == {"absolute"}
    features = npy(model.backbone(x))
    b = np.array([int(v) for v in y])
    held = sorted(set(b))
    mu, cov = ({c: f(features[b == c], axis=0) for c in held} for f in (np.mean, np.var))
    hand, head = ByHand(model), tail(model).head.linear
    errors = []
    for i in range(len(b)):
        k = np.array([math.exp(-((b[i] - c) ** 2) / 8) * (abs(b[i] - c) <= 2) for c in held])
        k /= k.sum()
        mu_s, cov_s = (sum(s * stat[c] for s, c in zip(k, held, strict=True)) for stat in (mu, cov))
        ratio = np.clip(np.maximum(cov_s, 1e-8) / np.maximum(cov[b[i]], 1e-8), 0.1, 10)
        z = (features[i] - mu[b[i]]) * np.sqrt(ratio) + mu_s if (b == b[i]).sum() > 1 else features[i]
        out = (npy(head.weight) @ z + npy(head.bias)).item()
        errors.append(abs((y[i].item() - hand.location) / hand.scale - out))
    assert loss.item() == pytest.approx(np.mean(errors), rel=1e-5)
    model.eval()
    for mode in MODES:
        assert torch.isfinite(model(x, mode).mean).all()


def test_a_decoder_of_several_inputs_needs_a_likelihood() -> None:
    x, y = data()
    bins, network = LabelBins.from_labels(y), nn.Bilinear(3, 3, 4, dtype=x.dtype)
    model = VIR(network, 4, bins, decoder=nn.Linear(4, 3)).double()
    for inputs in ((x, x), {"input1": x, "input2": x}):
        with pytest.raises(TypeError, match=r"the input is a (tuple|dict): give the decoder a method nll"):
            model.loss(inputs, y)


def test_a_decoder_that_knows_its_likelihood() -> None:
    """TableDecoder: columns 0 and 1 are numbers, column 2 the code of a category."""
    x, y = data()
    x[:, 2] = torch.arange(60) % 4
    decoder = TableDecoder(4, 2, (4,), hidden=6)
    model = build(y, decoder=decoder, kl=None, evidence=None, reconstruction={"weight": 0.5}).eval()
    loss, parts = model.loss(x, y)
    assert set(parts) == {"nll", "reconstruction"}
    z = torch.as_tensor(ByHand(model).latent(x)[0])
    assert parts["reconstruction"].item() == pytest.approx(0.5 * decoder.nll(z, x).mean().item())
    assert loss.item() == pytest.approx(sum(v.item() for v in parts.values()))
    assert "reconstruction" not in build(y, preset="paper").loss(x, y)[1], "there is no decoder"


def test_the_parts_shown_add_up_to_the_loss_under_sample_weights() -> None:
    x, y = data()
    model = build(y).eval()
    loss, parts = model.loss(x, y, torch.linspace(0, 3, 60).double())
    assert sum(v.item() for v in parts.values()) == pytest.approx(loss.item(), rel=1e-6)
    assert model.loss(x, y, torch.ones(60, 1))[0].isfinite()
    for wrong in (30, 59):  # 30 divides the number of rows
        message = rf"sample_weight has shape \({wrong},\), but labels have \(60,\)"
        with pytest.raises(ValueError, match=message):
            model.loss(x, y, torch.ones(wrong))


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
@pytest.mark.parametrize(("samples", "on"), [(0, "both"), (3, "both"), (0, "loss")])
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


def test_with_one_bin_marginal_equals_self() -> None:
    x, _ = data()
    y = torch.full((60,), 7.0)
    for samples in (0, 2):
        options = {"smoothing.at_inference": True, **sampled(samples)}
        model = one_epoch(build(y, **options), x, y).eval()
        one, other = model(x, "self"), model(x, "marginal")
        torch.testing.assert_close(one.mean, other.mean)
        torch.testing.assert_close(one.variance, other.variance)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("recolor", "samples"), [(False, 0), (True, 3)])
def test_neither_order_nor_size_of_a_batch_changes_a_prediction(
    mode: str, recolor: bool, samples: int
) -> None:
    x, y = data()
    model = build(y, **{"smoothing.at_inference": recolor, **sampled(samples)})
    train(model, x, y, epochs=2)
    model.eval()
    whole = model(x, mode)
    order = torch.as_tensor(np.random.default_rng(0).permutation(60))
    torch.testing.assert_close(model(x[order], mode).mean, whole.mean[order])
    torch.testing.assert_close(model(x[order], mode).variance, whole.variance[order])
    for size in (1, 7):
        for start in range(0, 14, size):
            part = model(x[start : start + size], mode)
            torch.testing.assert_close(part.mean, whole.mean[start : start + size])
            torch.testing.assert_close(part.epistemic, whole.epistemic[start : start + size])
    assert model(x[:0], mode).mean.shape == (0,)


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


@pytest.mark.parametrize("mode", ["self", "marginal"])
def test_the_total_variance_equals_monte_carlo_over_the_hierarchy(mode: str) -> None:
    """Draw variance ~ InvGamma(alpha, beta), mean ~ N(gamma, variance / nu), then the label."""
    x, y = data()
    model = build(y, head={"prior": (0.0, 1.0, 8.0, 2.0)}, **sampled(2 if mode == "marginal" else 0))
    train(model, x, y, epochs=2)
    prediction = model.eval()(x[:3], mode)
    rng = np.random.default_rng(0)
    draws = 300_000
    for i in range(3):
        if isinstance(prediction, Mixture):
            share = npy(prediction.weights[:, i])
            member = rng.choice(len(share), draws, p=share / share.sum())
            gamma, nu, alpha, beta = (npy(p[:, i])[member] for p in prediction.components.parameters)
        else:
            assert isinstance(prediction, NIG)
            gamma, nu, alpha, beta = (np.full(draws, p[i].item()) for p in prediction.parameters)
        variance = beta / rng.gamma(alpha)
        mean = rng.normal(gamma, np.sqrt(variance / nu))
        label = rng.normal(mean, np.sqrt(variance))
        assert prediction.mean[i].item() == pytest.approx(label.mean(), abs=0.02 * label.std())
        assert prediction.variance[i].item() == pytest.approx(label.var(), rel=0.02)
        assert prediction.aleatoric[i].item() == pytest.approx(variance.mean(), rel=0.02)
        assert prediction.epistemic[i].item() == pytest.approx(mean.var(), rel=0.03)


def _trained_predictions(x: Tensor, y: Array, preset: str) -> tuple[Array, Array]:
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(3, 8), nn.Tanh())
    model = VIR(backbone, 8, LabelBins.from_labels(y), preset=preset)
    train(model, x, torch.as_tensor(y), epochs=3)
    prediction = model.eval()(x)
    return npy(prediction.mean), np.sqrt(npy(prediction.aleatoric))


@pytest.mark.parametrize("kind", ["continuous", "whole"])
@settings(deadline=None, derandomize=True, max_examples=4)
@given(
    scale=st.sampled_from([1e-9, 1e-3, 0.1, 7.0, 1e5, 1e9]),
    shift=st.sampled_from([0.0, -0.5, 3e2, 1e6, -1e9]),
    preset=st.sampled_from(["default", "paper"]),
)
def test_predictions_follow_shifted_and_scaled_labels(
    kind: str, scale: float, shift: float, preset: str
) -> None:
    rng = np.random.default_rng(2)
    x = torch.as_tensor(rng.normal(size=(120, 3)), dtype=torch.float32)
    y = np.exp(npy(x[:, 0]) + 0.3 * rng.normal(size=120))
    if kind == "whole":
        y = np.round(5 * y)
    mean, std = _trained_predictions(x, y, preset)
    moved, moved_std = _trained_predictions(x, scale * y + shift * scale, preset)
    # float64 holds labels near 1e9 to 1e-7, and training in float32 feels that a little.
    np.testing.assert_allclose((moved - shift * scale) / scale, mean, atol=2e-3 * y.std())
    np.testing.assert_allclose(moved_std / scale, std, rtol=2e-3)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 5)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.linear(left - 2 * right)


def test_tuple_and_mapping_inputs() -> None:
    x, y = data()
    torch.manual_seed(0)
    model = VIR(Pair(), 5, LabelBins.from_labels(y)).double().eval()
    as_tuple, as_list, as_dict = (x, x.flip(0)), [x, x.flip(0)], {"right": x.flip(0), "left": x}
    want = model(as_tuple).mean
    assert torch.equal(model(as_list).mean, want) and torch.equal(model(as_dict).mean, want)
    assert not torch.allclose(model((x.flip(0), x)).mean, want)
    assert model.loss(as_tuple, y)[0].item() == model.loss(as_dict, y)[0].item()


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


def test_labels_of_another_shape_are_refused() -> None:
    x, y = data()
    model = build(y)
    for bad in (y[:, None], y[:-1], y.reshape(6, 10)):
        with pytest.raises(ValueError, match=r"labels have shape .*the features need \(60,\)"):
            model.loss(x, bad)


def test_a_wrong_feature_dim_is_named() -> None:
    x, y = data()
    model = VIR(nn.Linear(3, 5), 6, LabelBins.from_labels(y)).double()
    with pytest.raises(ValueError, match=r"features of shape \(60, 5\).*built for \(..., 6\): feature_dim"):
        model.loss(x, y)


def test_integer_and_float32_labels_are_the_same_labels() -> None:
    x, y = data()
    model = build(y).eval()
    want = model.loss(x, y)[0]
    for kind in (torch.int64, torch.float32, torch.int16):
        assert torch.equal(model.loss(x, y.to(kind))[0], want)
    assert tail(model).standardize(y).dtype == torch.float64
    assert tail(build(y).float()).standardize(y).dtype == torch.float32


def test_large_labels_keep_their_digits() -> None:
    """Labels of a billion and a few: float32 would round them to multiples of 64."""
    x, y = data()
    model, far = build(y).eval(), build(y + 1e9).eval()
    torch.testing.assert_close(far(x).mean - 1e9, model(x).mean, atol=1e-5, rtol=0)
    torch.testing.assert_close(tail(far).standardize(y + 1e9), tail(model).standardize(y), atol=1e-6, rtol=0)


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
    assert smoother.sums.count.sum() == 20
    model.end_epoch()
    kept = smoother.stats.mu_mean.clone()
    model.end_epoch()  # nothing seen since: nothing changes
    assert torch.equal(smoother.stats.mu_mean, kept)
    model.eval().loss(x, y)
    assert smoother.sums.count.sum() == 0  # evaluation collects nothing


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


def test_a_loop_that_never_ends_its_epochs_smooths_all_the_same() -> None:
    x, y = data()
    model = build(y).train()
    for epoch in range(2):
        model.begin_epoch(epoch / 2)
        model.loss(x, y)
    smoother = tail(model).smoother
    assert smoother is not None
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


@pytest.mark.parametrize("stop", [0, 2, 5])
def test_training_continues_from_a_state_bit_for_bit(stop: int) -> None:
    x, y = data()
    x = x.float()

    def steps(model: Network, optimizer: torch.optim.Optimizer, start: int, end: int) -> None:
        model.train()
        for step in range(start, end):
            torch.manual_seed(step)
            part = slice(20 * (step % 3), 20 * (step % 3) + 20)
            optimizer.zero_grad()
            model.loss(x[part], y[part])[0].backward()
            optimizer.step()

    straight, first, second = (build(y).float() for _ in range(3))
    train(second, x + 100, y, epochs=2)  # a past of its own, to be overwritten
    optimizers = [torch.optim.SGD(m.parameters(), 1e-3) for m in (straight, first, second)]
    steps(straight, optimizers[0], 0, 8)
    steps(first, optimizers[1], 0, stop)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    steps(second, optimizers[2], stop, 8)
    for name, value in straight.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name
    straight.eval(), second.eval()
    assert torch.equal(straight(x, "marginal").variance, second(x, "marginal").variance)


def test_copies_and_pickles_predict_and_train_the_same() -> None:
    x, y = data()
    model = build(y, **{"smoothing.at_inference": True, **sampled(2)})
    train(model, x, y, epochs=2)
    model.loss(x[:10], y[:10])
    model.eval()
    with torch.inference_mode():
        want = model(x).mean.clone()
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin.eval()(x).mean, want)
        losses = []
        for each in (copy.deepcopy(model), twin):
            torch.manual_seed(5)
            losses.append(train(each, x, y, epochs=2))
        assert losses[0] == losses[1]
        assert torch.equal(model(x).mean, want)  # the original is untouched


@pytest.mark.parametrize(
    "other",
    [
        np.arange(1, 14) - 0.5,
        np.linspace(-0.5, 11.5, 25),
        np.arange(13) - 0.5 + 1e-4,
    ],
    ids=["moved", "finer", "a little"],
)
@pytest.mark.parametrize("offset", [0.0, 1e6, -1e9])
def test_a_state_of_other_bins_is_refused(other: Array, offset: float) -> None:
    y = np.arange(12.0) + offset

    def model(edges: Array) -> VIR:
        return VIR(nn.Linear(3, 5), 5, LabelBins.from_labels(y, edges=edges + offset))

    state = model(np.arange(13) - 0.5).state_dict()
    model(np.arange(13) - 0.5).load_state_dict(state)
    with pytest.raises(ValueError, match="bins"):
        model(other).load_state_dict(state)


def test_a_state_brings_the_scale_of_its_labels_or_is_refused() -> None:
    """Same edges but other counts standardise differently: predictions must not silently move."""
    x, y = data()
    edges = np.arange(13) - 0.5
    torch.manual_seed(0)
    model = VIR(nn.Linear(3, 5), 5, LabelBins.from_labels(y, edges=edges)).double().eval()
    other = VIR(nn.Linear(3, 5), 5, LabelBins.from_labels(11 - y, edges=edges)).double().eval()
    try:
        other.load_state_dict(model.state_dict())
    except ValueError:
        return
    torch.testing.assert_close(other(x).mean, model(x).mean)


class Averaging(nn.Linear):
    """A decoder whose likelihood is an average, as those of pictures."""

    def nll(self, z: Tensor, x: Tensor) -> Tensor:
        return 0.5 * (x - self(z)).pow(2).mean(1)


class Summing(Averaging):
    """A decoder whose likelihood is a sum of three numbers."""

    numbers = 3

    def nll(self, z: Tensor, x: Tensor) -> Tensor:
        return 3 * super().nll(z, x)


def test_an_averaged_bound_counts_each_number_of_a_reconstruction_once() -> None:
    x, y = data()

    def recon(kind: type[nn.Linear], mean: bool) -> float:
        torch.manual_seed(1)
        model = build(y, decoder=kind(4, 3), **{"reconstruction.mean": mean}).eval()
        return float(model.loss(x, y)[1]["reconstruction"])

    mean = recon(Averaging, False)
    assert mean > 0
    assert [recon(d, True) for d in (nn.Linear, Averaging, Summing)] == pytest.approx([mean] * 3)
    assert [recon(d, False) for d in (nn.Linear, Summing)] == pytest.approx([3 * mean] * 2)


def _statistics(model: Network) -> tuple[Tensor, ...]:
    smoother = tail(model).smoother
    assert smoother is not None
    return (*smoother.stats.tensors(), *smoother.smoothed.tensors())


def _ranks_model(y: Tensor) -> VIR:
    torch.manual_seed(0)
    return VIR(nn.Linear(3, 5), 5, LabelBins.from_labels(y), **{"latent.dim": 4})


@pytest.mark.parametrize(
    ("message", "calls"),
    [
        ("process 0 terminated with signal SIGSEGV", 1),
        ("process 1 terminated with signal SIGABRT", 2),
        ("[enforce fail at gloo/transport/tcp/pair.cc] connection reset", 3),
        ("assert 1 == 2", 1),
    ],
)
def test_only_what_gloo_breaks_is_tried_again(
    message: str, calls: int, connected: Callable[..., Path]
) -> None:
    folders: list[Path] = []

    def ranks(folder: Path) -> None:
        folders.append(folder)
        raise RuntimeError(message)

    with pytest.raises(RuntimeError, match=re.escape(message)):
        connected(ranks)
    assert len(set(folders)) == calls


WAYS = ("alone", "wrapped", "inside")


def _rank(rank: int, folder: str) -> None:
    """Two epochs of three steps, half of every batch for each rank, wrapped in three ways."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    x, y = data()
    x = x.float()
    ddp = torch.nn.parallel.DistributedDataParallel
    for way in WAYS:
        model = _ranks_model(y).train()
        if way == "alone":
            step: Any = model.loss
        elif way == "wrapped":  # what Fabric does for a method other than forward
            step = ddp(model)
            model.forward = model.loss  # type: ignore[assignment]
        else:  # what Lightning does: the model is a part of the wrapped module
            step = ddp(Objective(model))
        for _ in range(2):
            for start in (0, 20, 40):
                rows = slice(start + 10 * rank, start + 10 * rank + 10)
                result = step(x[rows], y[rows])
                (result if way == "inside" else result[0]).backward()
            model.end_epoch()
        found = _statistics(model)
        torch.save(list(found), f"{folder}/{way}{rank}.pt")
    torch.distributed.barrier()  # neither hangs up while the other still listens
    os._exit(0)  # what a process group does in a dying interpreter is not ours to test


@pytest.mark.slow
def test_two_ranks_give_the_statistics_of_one(connected: Callable[..., Path]) -> None:
    x, y = data()
    model = _ranks_model(y).train()
    for _ in range(2):
        for start in (0, 20, 40):
            model.loss(x[start : start + 20].float(), y[start : start + 20])
        model.end_epoch()
    want = _statistics(model)
    ranks = connected(lambda folder: torch.multiprocessing.spawn(_rank, (str(folder),), nprocs=2))
    for way in WAYS:
        for rank in (0, 1):
            got = torch.load(ranks / f"{way}{rank}.pt")
            for a, b in zip(got, want, strict=True):
                torch.testing.assert_close(
                    a, b, rtol=1e-4, atol=1e-5, msg=lambda text, at=(way, rank): f"{at}: {text}"
                )
