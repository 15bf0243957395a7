"""The contract every registered method keeps, and oracles for those that have code of their own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor, nn

from tailwise.core.distributions import NIG, Mixture, Normal
from tailwise.core.kernels import label_weights
from tailwise.core.labels import LabelBins
from tailwise.learning.loop import TrainConfig, fit, predict
from tailwise.methods import Range, available_methods, build_model, get_method, register
from tailwise.methods.balanced_mse import _label_mixture
from tailwise.methods.ranksim import STEP, _ranks, ranksim
from tailwise.methods.registry import _around
from tailwise.networks.backbones import MLP
from tailwise.networks.losses import make_objective
from tailwise.networks.parts import Method, WeightConfig
from tailwise.networks.trainable import Trainable

NAMES = available_methods()
CONFIG = TrainConfig(epochs=3, batch_size=64, accelerator="cpu", patience=None)


def table(rows: int = 240, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4))
    y = np.round(np.exp(1 + 0.5 * x[:, 0] + 0.2 * rng.normal(size=rows)))
    return torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y)


def trained(name: str, seed: int = 0) -> tuple[Trainable, Tensor]:
    x, y = table()
    torch.manual_seed(seed)
    model = build_model(name, MLP(4, (16, 8)), 8, LabelBins.from_labels(y))
    fit(model, (x, y), (x[:60], y[:60]), CONFIG, progress=False)
    return model, x


@pytest.mark.parametrize("name", NAMES)
def test_contract(name: str) -> None:
    """Trains, predicts without labels, is finite and seeded, has a variance, and its state round-trips."""
    model, x = trained(name)
    prediction = predict(model, x)
    assert prediction.shape == (len(x),)
    assert torch.isfinite(prediction.mean).all() and (prediction.variance > 0).all()
    assert prediction.mean.std() > 0
    again, _ = trained(name)
    torch.testing.assert_close(predict(again, x).mean, prediction.mean, rtol=0, atol=0)
    other, _ = trained(name, seed=1)
    assert not torch.equal(predict(other, x).mean, prediction.mean)
    _, y = table()
    twin = build_model(name, MLP(4, (16, 8)), 8, LabelBins.from_labels(y))
    twin.load_state_dict(model.state_dict())
    torch.testing.assert_close(predict(twin, x).variance, prediction.variance, rtol=0, atol=0)
    torch.testing.assert_close(predict(model, x[:7]).mean, prediction.mean[:7])


@pytest.mark.parametrize("name", NAMES)
def test_promised_uncertainty(name: str) -> None:
    model, x = trained(name)
    prediction, promise = predict(model, x), get_method(name).uncertainty
    varies = bool(prediction.variance.std() > 1e-9 * prediction.variance.mean())
    assert varies == (promise != "none")
    # A row whose features are all off has nothing that dropout could take away.
    assert bool((prediction.epistemic > 0).double().mean() > 0.9) == (promise == "aleatoric and epistemic")


@pytest.mark.parametrize("name", NAMES)
def test_documented(name: str) -> None:
    method = get_method(name)
    assert len(method.about) > 60 and method.title
    assert any(mark in method.about for mark in ("19", "20", "every row alike")), "no citation"


@pytest.mark.parametrize("name", ["vanilla", "ranksim", "vae", "ensemble", "vir", "infer-noise"])
def test_any_backbone_and_data_kind(name: str) -> None:
    """Two inputs, and one label per pixel."""

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 8)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return torch.relu(self.linear(a) + self.linear(b))

    x, y = table(64)
    model = build_model(name, Pair(), 8, LabelBins.from_labels(y))
    model.loss((x, x), y)[0].backward()
    assert model.eval()((x, x)).shape == (64,)
    dense = build_model(name, nn.Linear(4, 8), 8, LabelBins.from_labels(y))
    dense.loss(x.reshape(4, 16, 4), y.reshape(4, 16))[0].backward()
    assert dense.eval()(x.reshape(4, 16, 4)).shape == (4, 16)


def test_unknown_names_and_double_registration() -> None:
    with pytest.raises(ValueError, match=r"'vr'; did you mean 'vir'\?"):
        get_method("vr")
    with pytest.raises(ValueError, match="exists already"):
        register("vir", title="again", parts=Method(), about="")
    with pytest.raises(ValueError, match="did you mean 'batch-mse'"):
        Method(objective="batch-mes")


def test_what_is_searched_starts_at_what_the_parts_have() -> None:
    parts = Method(weights=WeightConfig(power=0.8, clip=(1.0, 9.0)), head="evidential")
    space = {"weights.power": Range(0.0, 1.0, log=False), "weights.clip": (None, (1.0, 9.0))}
    found = _around(parts, space)
    assert found["weights.power"] == Range(0.0, 1.0, log=False, default=0.8)
    assert found["weights.clip"] == ((1.0, 9.0), None)
    for option in ("weights.pover", "head_options.sharpness", "rate"):
        with pytest.raises(ValueError, match=f"'{option}' is to be searched, but the parts have no such"):
            register("wrong", title="", parts=parts, about="", search={option: (1.0,)})
    assert "wrong" not in available_methods()


def test_members_have_decoders_of_their_own() -> None:
    x, y = table(64)
    model = build_model(
        "vae", nn.Linear(4, 8), 8, LabelBins.from_labels(y), decoder=nn.Linear(8, 4), members=3
    )
    weights = [network.decoder.weight for network in model.networks]
    assert not any(torch.equal(a, b) for a, b in itertools.pairwise(weights))
    model.loss(x, y)[0].backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in weights)


def test_a_decoder_that_several_targets_would_leave_unused_is_refused() -> None:
    bins = [skewed_bins(), skewed_bins()]
    with pytest.raises(ValueError, match="several targets share a backbone, and have no decoder"):
        build_model("vae", nn.Linear(4, 8), 8, bins, decoder=nn.Linear(8, 4))


# -- Balanced MSE ------------------------------------------------------------------------------


def skewed_bins() -> LabelBins:
    return LabelBins.from_labels(np.repeat(np.arange(12.0), [40, 90, 60, 30, 20, 9, 5, 4, 3, 2, 1, 1]))


def test_bni_and_gai_equal_the_integral() -> None:
    """-log N(y; m, s^2) + log of the integral of N(y'; m, s^2) p(y') dy', computed numerically."""
    bins, noise = skewed_bins(), 0.4
    m, y = torch.tensor([-0.9, 0.3, 2.5]), torch.tensor([-1.0, 0.5, 2.0])
    for components in (None, 3):
        module = make_objective("balanced-mse", bins, {"noise": noise, "components": components})
        ours = module(Normal(m, 1.0), y) / (2 * noise**2)
        share, center, spread = _label_mixture(bins, components)
        for i in range(3):
            if components is None:  # point masses at the bins
                normal = sum(p * stats.norm.pdf(c, m[i], noise) for p, c in zip(share, center, strict=True))
            else:
                parts = list(zip(share, center, spread, strict=True))

                def density(
                    t: float, at: float = m[i].item(), parts: list[tuple[float, ...]] = parts
                ) -> float:
                    label = sum(p * stats.norm.pdf(t, c, v**0.5) for p, c, v in parts)
                    return float(label * stats.norm.pdf(t, at, noise))

                normal = integrate.quad(density, -8, 12, limit=300, points=list(center))[0]
            expected = -stats.norm.logpdf(y[i], m[i], noise) + np.log(normal)
            # Ours leaves log sqrt(2 pi) out of both terms, where it cancels.
            assert ours[i].item() == pytest.approx(expected, abs=1e-4)


def test_label_mixture_has_the_labels_moments() -> None:
    share, center, spread = _label_mixture(skewed_bins(), 4)
    mean = share @ center
    assert share.sum() == pytest.approx(1) and mean == pytest.approx(0, abs=1e-6)
    assert share @ (spread + center**2) - mean**2 == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("balanced-mse", {"noise": 0.0}, "noise must be positive, got 0.0"),
        ("batch-mse", {"noise": -1.0}, "noise must be positive, got -1.0"),
        ("balanced-mse", {"components": 0}, "components must be at least 1, or None for the bins"),
    ],
)
def test_impossible_options_of_balanced_mse(name: str, options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_objective(name, skewed_bins(), options)


def test_bmc_is_a_cross_entropy_among_the_batch() -> None:
    bins = skewed_bins()
    m, y = torch.tensor([0.1, 1.0, -0.4]), torch.tensor([0.0, 1.5, -1.0])
    ours = make_objective("batch-mse", bins, {"noise": 0.5})(Normal(m, 1.0), y) / (2 * 0.25)
    for i in range(3):
        likelihood = [stats.norm.pdf(y[j], m[i], 0.5) for j in range(3)]
        assert ours[i].item() == pytest.approx(-np.log(likelihood[i] / sum(likelihood)), abs=1e-5)


# -- RankSim -----------------------------------------------------------------------------------


def brute_ranks(values: np.ndarray) -> np.ndarray:
    return np.array([[sum(other > v for other in row) for v in row] for row in values])


def test_ranksim_by_brute_force() -> None:
    rng = np.random.default_rng(3)
    z, y = rng.normal(size=(9, 5)), rng.permutation(9) ** 1.7
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    similarity = unit @ unit.T
    labels = -np.abs(y[:, None] - y)
    expected = ((brute_ranks(similarity) - _ranks(torch.as_tensor(labels)).numpy()) ** 2).sum() / 9 / 81
    assert ranksim(torch.as_tensor(z), torch.as_tensor(y)).item() == pytest.approx(expected)


def test_ranksim_takes_one_row_per_label() -> None:
    z, y = torch.randn(6, 3), torch.tensor([1.0, 2.0, 1.0, 3.0, 2.0, 5.0])
    torch.testing.assert_close(ranksim(z, y), ranksim(z[[0, 1, 3, 5]], y[[0, 1, 3, 5]]))


def test_ranksim_gradient_is_that_of_the_interpolated_ranking() -> None:
    """The blackbox gradient equals finite differences of the piecewise-linear interpolation.

    For the direction g the interpolation between rank(a) and rank(a + STEP g) has the slope
    (rank(a + STEP g) - rank(a)) / STEP, which a step of length STEP along g measures.
    """
    from tailwise.methods.ranksim import _Rank

    a = torch.tensor([[0.3, 0.1, 0.9, 0.4]], dtype=torch.float64, requires_grad=True)
    g = torch.tensor([[0.5, -0.2, -0.7, 0.3]], dtype=torch.float64)
    _Rank.apply(a).backward(g)
    moved = brute_ranks((a.detach() + STEP * g).numpy()) - brute_ranks(a.detach().numpy())
    np.testing.assert_allclose(a.grad.numpy(), moved / STEP)


def test_ranksim_training_brings_the_ranks_together() -> None:
    torch.manual_seed(0)
    z = torch.randn(16, 4, requires_grad=True)
    y = torch.arange(16.0)
    optimizer = torch.optim.Adam([z], 0.05)
    before = ranksim(z, y).item()
    for _ in range(150):
        optimizer.zero_grad()
        (100 * ranksim(z, y)).backward()
        optimizer.step()
    assert ranksim(z, y).item() < 0.5 * before


# -- others ------------------------------------------------------------------------------------


def test_focal_r_and_beta_nll_by_hand() -> None:
    bins = skewed_bins()
    focal = make_objective("focal-r", bins, {"b": 0.5, "g": 2.0})
    assert focal(Normal(torch.tensor([1.0]), 1.0), torch.tensor([3.0])).item() == pytest.approx(
        2 / (1 + np.exp(-1.0)) ** 2
    )
    variance = torch.tensor([4.0], requires_grad=True)
    loss = make_objective("beta-nll", bins)(Normal(torch.tensor([1.0]), variance), torch.tensor([3.0]))
    assert loss.item() == pytest.approx(2 * -stats.norm.logpdf(3, 1, 2))
    loss.backward()
    # d/dv of (log v + 4/v)/2 at 4, times the fixed factor 2.
    assert variance.grad.item() == pytest.approx(2 * 0.5 * (1 / 4 - 4 / 16))


def test_dense_weights_fall_with_density() -> None:
    bins = skewed_bins()
    w = label_weights(bins, form="dense", power=1.0)
    assert bins.counts @ w / bins.counts.sum() == pytest.approx(1)
    assert w[1] == w.min() and w[-1] > w[4] > w[1]
    np.testing.assert_allclose(label_weights(bins, form="dense", power=0.0), 1.0)


def test_ensemble_moments_by_sampling() -> None:
    model, x = trained("ensemble")
    prediction = predict(model, x[:5])
    assert isinstance(prediction, Mixture) and prediction.components.shape == (5, 5)
    draws = prediction.sample(200_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(draws.mean(0), prediction.mean, rtol=0.02, atol=0.02)
    torch.testing.assert_close(draws.var(0), prediction.variance, rtol=0.03, atol=0.03)
    members = prediction.components.mean
    torch.testing.assert_close(prediction.epistemic, members.var(0, correction=0))
    assert members.std(0).min() > 0


def test_infer_noise_spread_is_that_of_noisy_passes() -> None:
    model, x = trained("infer-noise")
    prediction = predict(model, x[:4])
    still = predict(build_plain(model), x[:4])
    assert isinstance(prediction, Mixture) and prediction.components.shape[0] == 16
    assert ((prediction.mean - still.mean).abs() < 3 * prediction.epistemic.sqrt()).all()


def build_plain(model: Trainable) -> Trainable:
    _, y = table()
    plain = build_model("vanilla", MLP(4, (16, 8)), 8, LabelBins.from_labels(y))
    plain.load_state_dict(model.state_dict())
    return plain


def test_rrt_freezes_the_encoder_and_restarts_the_head() -> None:
    x, y = table()
    model = build_model("rrt", MLP(4, (16, 8)), 8, LabelBins.from_labels(y))
    snapshots: list[dict[str, Tensor]] = []
    begin = model.begin_epoch

    def watched(progress: float) -> bool:
        changed = begin(progress)
        snapshots.append({k: v.clone() for k, v in model.state_dict().items()})
        return changed

    model.begin_epoch = watched  # type: ignore[method-assign]
    result = fit(model, (x, y), (x, y), TrainConfig(epochs=6, accelerator="cpu"), progress=False)
    encoder = "backbone.layers.0.weight"
    assert not torch.equal(snapshots[1][encoder], snapshots[2][encoder])
    for later in snapshots[4:]:
        assert torch.equal(later[encoder], snapshots[3][encoder])
    assert not torch.equal(snapshots[5]["head.linear.weight"], snapshots[4]["head.linear.weight"])
    assert result.best_epoch >= 4, "the weights kept must be those of the second stage"


def test_vae_reconstructs_features() -> None:
    x, y = table(32)
    model = build_model("vae", nn.Linear(4, 8), 8, LabelBins.from_labels(y))
    _, parts = model.loss(x, y)
    assert set(parts) == {"squared", "kl", "recon"}


def test_several_targets_have_bins_of_their_own() -> None:
    x, y = table()
    both = torch.stack([y, 1000 * x[:, 1].double() - 5], dim=1)
    bins = [LabelBins.from_labels(both[:, 0]), LabelBins.from_labels(both[:, 1])]
    for name in ("vir", "ensemble", "vanilla", "infer-noise"):
        torch.manual_seed(0)
        model = build_model(name, MLP(4, (16, 8)), 8, bins)
        config = TrainConfig(epochs=15, batch_size=64, accelerator="cpu", lr=5e-3)
        result = fit(model, (x, both), (x, both), config, progress=False)
        prediction = predict(model, x)
        assert prediction.shape == both.shape
        assert result.best_score < 1.0
        for t in range(2):
            r = np.corrcoef(prediction.mean[:, t].numpy(), both[:, t].numpy())[0, 1]
            assert r > 0.5, (name, t)
    with pytest.raises(ValueError, match="not \\(rows, 2\\)"):
        model.loss(x, y)


def test_exact_statistics_in_compound_models() -> None:
    x, y = table()
    bins = [LabelBins.from_labels(y), LabelBins.from_labels(2 * y)]
    both = torch.stack([y, 2 * y], 1)
    model = build_model("vir", MLP(4, (16, 8)), 8, bins, smoothing={"exact": True})
    fit(model, (x, both), None, CONFIG, progress=False)
    for network in model.networks:
        assert int(network.smoother.stats_count.sum()) == len(x)
    model = build_model("vir", MLP(4, (16, 8)), 8, bins[0], members=2, smoothing={"exact": True})
    fit(model, (x, y), None, CONFIG, progress=False)
    assert isinstance(predict(model, x), Mixture) and isinstance(model.networks[0](x), NIG)


def test_parts_of_options_are_named_with_a_dot_or_nested() -> None:
    nested = {"weights": {"power": 1.0, "clip": (0.5, 5.0)}, "head_options": {"sharpness": 2.0}}
    dotted = {"weights.power": 1.0, "weights.clip": (0.5, 5.0), "head_options.sharpness": 2.0}
    parts = get_method("vir").parts
    assert parts.with_options(**dotted) == parts.with_options(**nested) != parts
    for wrong, message in (
        ({"weights": {}, "weights.power": 1.0}, "give weights or weights.power, not both"),
        ({"weights.powr": 1.0}, "unknown option 'powr' of weights"),
        ({"wieghts.power": 1.0}, "unknown option 'wieghts'; did you mean 'weights'"),
    ):
        with pytest.raises(ValueError, match=message):
            parts.with_options(**wrong)
