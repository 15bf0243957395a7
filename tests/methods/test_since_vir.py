"""The methods since VIR against plain loops: ties, one row, equal labels, float labels; gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from tailwise.distributions.members import Mixture, Normal
from tailwise.labels.bins import LabelBins
from tailwise.labels.kernels import label_weights
from tailwise.methods import build_model
from tailwise.methods.conr import conr
from tailwise.methods.rank_n_contrast import rank_n_contrast
from tailwise.methods.srl import SurrogateLoss
from tailwise.training.batches import Batch
from tailwise.training.config import TrainConfig
from tailwise.training.steps import Optimizer, TrainingStep
from tests.methods.trained_methods import skewed_bins, table
from tests.networks.small_models import batch, loss_of, make_part

LABELS = {
    "ties": [3.0, 1.0, 2.0, 2.0, 3.0, 0.0, 5.0],
    "one row": [1.5],
    "equal labels": [2.0, 2.0, 2.0, 2.0],
    "float labels": [0.31, -1.27, 0.3, 2.49, 0.92, -0.4],
}
each_kind = pytest.mark.parametrize("y", LABELS.values(), ids=LABELS)


def latents(rows: int, dim: int = 3) -> Tensor:
    return torch.as_tensor(np.random.default_rng(rows).normal(size=(rows, dim)))


def check_gradient(function: Callable[[Tensor], Tensor], at: Tensor) -> None:
    assert torch.autograd.gradcheck(function, at.clone().requires_grad_(), eps=1e-6, atol=1e-5)


# -- Rank-N-Contrast -------------------------------------------------------------------------------


@each_kind
def test_rank_n_contrast_equals_a_loop(y: list[float]) -> None:
    z, labels, n = latents(len(y)), torch.tensor(y).double(), len(y)
    expected = np.zeros(n)
    for i in range(n):
        for j in range(n):
            if j != i:
                far = [k for k in range(n) if k != i and abs(y[i] - y[k]) >= abs(y[i] - y[j]) - 1e-9]
                s = {k: -np.linalg.norm(z[i] - z[k]) / 2 for k in far}
                expected[i] += (np.log(sum(np.exp(s[k]) for k in far)) - s[j]) / (n - 1)
    ours = rank_n_contrast(z, labels, 2.0)
    np.testing.assert_allclose(ours.numpy(), expected, atol=1e-12)
    check_gradient(lambda x: rank_n_contrast(x, labels, 2.0), z)


def test_rank_n_contrast_of_equal_features_has_a_finite_gradient() -> None:
    z = torch.ones(4, 3, requires_grad=True)
    rank_n_contrast(z, torch.arange(4.0), 2.0).sum().backward()
    assert z.grad is not None and z.grad.isfinite().all()


def test_the_first_stage_trains_the_encoder_and_the_second_the_head() -> None:
    x, y = table(60)
    model = build_model("rnc", nn.Linear(4, 8), 8, LabelBins.from_labels(y)).train()
    for progress, there in ((0.0, "rnc"), (0.9, "absolute")):
        model.begin_epoch(progress)
        model.zero_grad()
        loss, parts = model.loss(x, y)
        loss.backward()
        assert [name for name, part in parts.items() if part != 0] == [there]
        encoder = next(model.backbones[0].parameters()).grad
        assert (encoder is not None) == (there == "rnc")
        model.end_epoch()
    with pytest.raises(ValueError, match="'pretrain' needs a loss of latents"):
        build_model("vanilla", nn.Linear(4, 8), 8, LabelBins.from_labels(y), schedule="pretrain")


# -- ConR ------------------------------------------------------------------------------------------


@each_kind
def test_conr_equals_a_loop(y: list[float]) -> None:
    z, labels, n, omega, t = latents(len(y)), torch.tensor(y).double(), len(y), 0.5, 0.2
    said = labels.roll(1) * 0.3  # some rows with other labels are predicted alike
    push = torch.linspace(0.5, 2, n).double()
    unit = z.numpy() / np.linalg.norm(z.numpy(), axis=1, keepdims=True)
    expected = np.zeros(n)
    for i in range(n):
        e = np.exp(unit @ unit[i] / t)
        near = [k for k in range(n) if abs(y[i] - y[k]) < omega]
        confused = [k for k in range(n) if k not in near and abs(float(said[i] - said[k])) < omega]
        pushed = sum(float(push[i]) * abs(y[i] - y[k]) / omega * e[k] for k in confused)
        if confused:
            whole = sum(e[k] for k in near) + pushed
            expected[i] = -np.log(np.mean([e[k] / whole for k in near]))
    ours = conr(z, labels, said, push, omega, t)
    np.testing.assert_allclose(ours.numpy(), expected, atol=1e-12)
    assert (expected > 0).any() == (n > 1 and len(set(y)) > 1)
    check_gradient(lambda x: conr(x, labels, said, push, omega, t), z)


# -- Dist Loss -------------------------------------------------------------------------------------


@each_kind
def test_dist_loss_equals_a_loop(y: list[float]) -> None:
    bins = skewed_bins()
    loss = loss_of("dist", bins).double()
    mean = torch.tensor(y).double()
    known = bins.standardized()
    share, width = known.counts / known.counts.sum(), 1.06 * known.counts.sum() ** -0.2
    grid = np.linspace(known.edges[0], known.edges[-1], 200_001)
    below = sum(p * stats.norm.cdf(grid, c, width) for p, c in zip(share, known.centers, strict=True))
    wanted = np.interp((np.arange(len(y)) + 0.5) / len(y), below, grid)
    expected = np.zeros(len(y))
    for rank, row in enumerate(sorted(range(len(y)), key=lambda row: y[row])):
        expected[row] = abs(y[row] - wanted[rank])
    ours = loss(batch(Normal(mean, 1.0), torch.zeros_like(mean)))
    np.testing.assert_allclose(ours.numpy(), expected, atol=2e-3)
    apart = mean + 0.01 * torch.arange(len(y))  # the order of equal predictions may not change
    check_gradient(lambda m: loss(batch(Normal(m, 1.0), torch.zeros_like(m))), apart)


# -- SRL -------------------------------------------------------------------------------------------


def srl_rows(loss: SurrogateLoss, z: Tensor, index: list[int]) -> Tensor:
    zero = torch.zeros(len(z)).double()
    ours: Tensor = loss(batch(Normal(zero, 1.0), zero, z_mean=z, index=torch.tensor(index)))
    return ours


@pytest.mark.parametrize(
    "labels", [[0, 1, 2, 3, 5, 9], [-1.3, 0.1, 1.2, 1.7, 4.4, 8.9]], ids=["whole", "float"]
)
@pytest.mark.parametrize("index", [[0, 2, 2, 5], [3], [4, 4, 4]], ids=["ties", "one row", "equal labels"])
def test_srl_equals_a_loop(index: list[int], labels: list[float]) -> None:
    bins = LabelBins.from_labels(np.repeat(labels, [9, 9, 5, 2, 1, 1]), count=20)
    filled = [int(b) for b in np.flatnonzero(bins.counts)]
    loss = make_part("losses", "srl", 3, bins, uniformity=0.5).double().train()
    first, places = latents(12), [0, 1, 2, 3, 4, 5] * 2
    assert not srl_rows(loss, first, [filled[p] for p in places]).any()
    loss.end_epoch()
    unit = (first / first.norm(dim=1, keepdim=True)).numpy()
    means = np.array([unit[[p == q for q in places]].sum(0) for p in range(6)])
    surrogate = means / np.linalg.norm(means, axis=1, keepdims=True)
    np.testing.assert_allclose(loss.surrogate.numpy(), surrogate, atol=1e-12)

    z = latents(len(index))
    unit = (z / z.norm(dim=1, keepdim=True)).numpy()
    path = surrogate.copy()
    for p in set(index):
        mean = sum(unit[i] for i in range(len(index)) if index[i] == p)
        path[p] = mean / np.linalg.norm(mean)
    near = [max(3**0.5 * float(point @ at) for at in path) for point in loss.points.numpy()]
    envelope = -np.mean([1 / (1 + np.exp(2 - value)) for value in near])
    centers = bins.standardized().centers[filled]
    uniformity = sum(
        ((path[p + 1] - path[p]) ** 2).sum() / (centers[p + 1] - centers[p]) for p in range(len(path) - 1)
    )
    logits = unit @ surrogate.T / 0.1
    contrast = [np.log(np.exp(row).sum()) - row[p] for row, p in zip(logits, index, strict=True)]
    rows = [filled[p] for p in index]
    ours = srl_rows(loss.eval(), z, rows)
    np.testing.assert_allclose(ours.numpy(), envelope + 0.5 * uniformity + np.array(contrast), rtol=1e-6)
    check_gradient(lambda x: srl_rows(loss, x, rows), z)


def test_a_bin_without_rows_has_the_nearest_surrogate_and_others_move() -> None:
    bins = LabelBins.from_labels([0.0, 1.0, 2.0])
    loss = make_part("losses", "srl", 2, bins, momentum=0.5).double().train()
    srl_rows(loss, torch.tensor([[3.0, 0.0]]).double(), [0])
    loss.end_epoch()
    np.testing.assert_allclose(loss.surrogate.numpy(), [[1, 0]] * 3)
    srl_rows(loss, torch.tensor([[0.0, 2.0], [-1.0, 0.0]]).double(), [0, 2])
    loss.end_epoch()
    np.testing.assert_allclose(loss.surrogate.numpy()[[0, 2]], [[0.5**0.5, 0.5**0.5], [-1, 0]])


# -- UVOTE -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("experts", [2, 3])
def test_uvote_believes_the_most_certain_and_weights_by_powers_of_density(experts: int) -> None:
    bins = skewed_bins()
    head = make_part("head", "voting", 3, bins, experts=experts).double()
    loss = loss_of("experts", bins).double()
    z, index = latents(5), torch.tensor([0, 1, 11, 11, 4])
    prediction = head(z)
    said = [expert(z) for expert in head.experts]
    y = torch.linspace(-1, 3, 5).double()
    rarity = label_weights(bins, bandwidth=2.0, radius=5, power=1.0)
    expected = np.zeros(5)
    for m in range(experts):
        w = rarity ** (m / (experts - 1))
        w = w / (w @ bins.counts / bins.counts.sum())
        for i in range(5):
            mean, variance = said[m].mean[i].item(), said[m].variance[i].item()
            expected[i] -= w[index[i]] * stats.norm.logpdf(float(y[i]), mean, variance**0.5) / experts
    ours = loss(batch(prediction, y, index=index))
    np.testing.assert_allclose(ours.detach().numpy(), expected, rtol=1e-5)
    ties = torch.tensor([0, 1, 1, 4, 4])
    for rows in (torch.arange(5), ties, ties[:1], ties[1:3]):  # float labels, ties, one row, equal labels
        check_gradient(lambda at, rows=rows: loss(batch(head(at), y[rows], index=index[rows])), z[rows])
    for i in range(5):
        voted = min(said, key=lambda p: p.variance[i].item())
        assert prediction.mean[i] == voted.mean[i] and prediction.variance[i] == voted.variance[i]
    assert not prediction.epistemic.any()


def test_uvote_of_pseudo_counts_counts_rare_rows_more_in_later_experts() -> None:
    bins = skewed_bins()
    head = make_part("head", "voting", 3, bins, experts=3, expert="pseudo-count").double()
    z, w = latents(4), torch.tensor([0.5, 1.0, 4.0, 9.0]).double()
    prediction = head(z, w)
    assert isinstance(prediction, Mixture)
    for m, expert in enumerate(head.experts):
        torch.testing.assert_close(prediction.components[m].mean, expert(z, w ** (m / 2)).mean)
    nll, both = loss_of("experts", bins).double(), loss_of("experts", bins, evidence=0.3).double()
    y = torch.tensor([0.5, 0.5, -1.0, 2.5]).double()  # in bin 0, so that experts have one weight each
    rarity = label_weights(bins, bandwidth=2.0, radius=5, power=1.0)
    cost = 0.0
    for m, belief in enumerate(prediction.components):
        of_bin = rarity ** (m / 2)
        weight = of_bin[0] / (of_bin @ bins.counts / bins.counts.sum())
        cost = cost + weight * 0.3 * (belief.nu + 2 * belief.alpha) * (y - belief.gamma).abs() / 3
    rows = batch(prediction, y)
    torch.testing.assert_close(both(rows) - nll(rows), cost, rtol=1e-5, atol=0)
    for rows in (slice(0, 4), slice(0, 1), slice(0, 2)):  # float labels, one row, equal labels
        check_gradient(lambda at, rows=rows: both(batch(head(at, w[rows]), y[rows])), z[rows])


# -- BSAM ------------------------------------------------------------------------------------------


def test_bsam_step_by_hand() -> None:
    """One step of gradient descent from the gradient at theta + rho g / |g|, weights included."""
    x, y = table(40)
    bins = LabelBins.from_labels(y)
    torch.manual_seed(0)
    model = build_model("bsam", nn.Linear(4, 3), 3, bins, sharpness={"rho": 0.3})
    twin = build_model("bsam", nn.Linear(4, 3), 3, bins)
    twin.load_state_dict(model.state_dict())
    config = TrainConfig(optimizer="sgd", lr=0.1, weight_decay=0.0, clip_norm=None, accelerator="cpu")
    cpu = torch.device("cpu")
    step = TrainingStep(model, Optimizer(model, config, cpu), config, cpu)

    def objective() -> Tensor:
        w = torch.as_tensor(label_weights(bins, kernel=None), dtype=torch.float32)[bins.index(y)]
        error = (twin.tails[0].standardize(y) - twin.tails[0].head(twin.backbone(x)).mean).abs()
        return (w * error).mean()

    weights = list(twin.parameters())
    start = [p.detach().clone() for p in weights]
    uphill = torch.autograd.grad(objective(), weights)
    norm = sum(g.pow(2).sum() for g in uphill) ** 0.5
    with torch.no_grad():
        for p, g in zip(weights, uphill, strict=True):
            p += 0.3 * g / norm
    there = torch.autograd.grad(objective(), weights)
    step([(0, Batch(x, y))])
    for ours, before, g in zip(model.parameters(), start, there, strict=True):
        torch.testing.assert_close(ours.detach(), before - 0.1 * g, rtol=1e-4, atol=1e-6)


def test_shards_perturb_by_the_gradient_of_all_of_them() -> None:
    x, y = table(40)
    bins, cpu = LabelBins.from_labels(y), torch.device("cpu")
    models = []
    for shards in (1, 2):
        torch.manual_seed(0)
        model = build_model("bsam", nn.Linear(4, 3), 3, bins)
        config = TrainConfig(accelerator="cpu", shards=shards)
        optimizer = Optimizer(model, config, cpu)
        halves = [(0, Batch(x[:20], y[:20])), (1, Batch(x[20:], y[20:]))]
        step = TrainingStep(model, optimizer, config, cpu, shards)
        step([(0, Batch(x, y))] if shards == 1 else halves)
        models.append(model)
    for ours, theirs in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(ours, theirs)
