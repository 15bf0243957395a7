"""VIR:A, VIR:S and VIR:F against plain NumPy loops from the specification, and their laws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter1d
from torch import Tensor

from tailwise.labels.bins import LabelBins
from tailwise.networks.smoothing import BinStatistics, LatentSmoother
from tests.networks.small_models import (
    Array,
    Stats,
    gaussian_kernel,
    loop_recolor,
    loop_smooth,
    loop_statistics,
    make_part,
)

law = settings(deadline=None, derandomize=True, max_examples=30)


def smoother_of(num_bins: int, dim: int, members: int = 1, **options: Any) -> LatentSmoother:
    """A smoother over bins of width 1."""
    bins = LabelBins.from_labels(np.arange(num_bins), edges=np.arange(num_bins + 1) - 0.5)
    found = make_part("smoothing", "statistics", dim, bins, members, **options)
    assert isinstance(found, LatentSmoother)
    return found


def rows(seed: int, n: int = 60, num_bins: int = 7, dim: int = 3) -> tuple[Array, Array, Array]:
    """Rows whose mean and spread depend on the bin; of seven, bin 2 is empty, 5 holds one row."""
    rng = np.random.default_rng(seed)
    index = rng.integers(0, num_bins, n)
    if num_bins > 5:
        index[(index == 2) | (index == 5)] = 0
        index[n // 2] = 5
    spread = np.exp(rng.normal(size=(num_bins, dim)))[index]
    z_mean = rng.normal(size=(num_bins, dim))[index] + spread * rng.normal(size=(n, dim))
    return z_mean, rng.gamma(2.0, 0.3, size=(n, dim)), index


def tensors(*arrays: Array, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return [torch.as_tensor(a, dtype=None if a.dtype == np.int64 else dtype) for a in arrays]


def assert_stats(got: BinStatistics, want: Stats, rtol: float) -> None:
    held = want["count"] > 0
    np.testing.assert_array_equal(got.count.numpy(), want["count"])
    for name in ("mu_mean", "mu_var", "cov_mean"):
        value = getattr(got, name).double().numpy()
        assert np.isfinite(value).all()
        np.testing.assert_allclose(value[held], want[name][held], rtol=rtol, atol=rtol)


# -- VIR:A, VIR:S, VIR:F --------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-11), (torch.float32, 2e-5)])
@pytest.mark.parametrize(("num_bins", "clip"), [(1, (0.1, 10.0)), (2, (0.1, 10.0)), (7, (0.9, 1.2))])
def test_statistics_smoothing_and_recolouring_equal_loops(
    dtype: torch.dtype, rtol: float, num_bins: int, clip: tuple[float, float]
) -> None:
    z_mean, z_var, index = rows(0, num_bins=num_bins)
    want = loop_statistics(z_mean, z_var, index, num_bins)
    want_smooth = loop_smooth(want, gaussian_kernel(2.0, 2))
    m, v, b = tensors(z_mean, z_var, index, dtype=dtype)
    smoother = smoother_of(num_bins, 3, clip=clip).to(dtype)
    smoother.accumulate(m, v, b)
    smoother.commit()
    assert_stats(smoother.stats, want, max(rtol, 1e-9))
    assert_stats(smoother.smoothed, want_smooth, max(rtol, 1e-6))  # the kernel is kept in float32
    # rows of every bin, also of the empty one
    everywhere = np.arange(len(index)) % num_bins
    want_mean, want_var = loop_recolor(z_mean, z_var, everywhere, want, want_smooth, clip)
    mean, var = smoother(m, v, torch.as_tensor(everywhere))
    np.testing.assert_allclose(mean.double(), want_mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(var.double(), want_var, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("form", ["paper", "reference"])
@pytest.mark.parametrize("num_bins", [4, 9])
def test_reflecting_ends_equal_padded_statistics(form: str, num_bins: int) -> None:
    """Statistics padded by NumPy, then a weighted sum over five bins: squared weights for the variance."""
    rng = np.random.default_rng(num_bins)
    index = np.repeat(np.arange(num_bins), 3)
    z_mean, z_var = rng.normal(size=(len(index), 2)), rng.gamma(2.0, size=(len(index), 2))
    smoother = smoother_of(num_bins, 2, form=form, boundary="reflect").double()
    smoother.accumulate(*tensors(z_mean, z_var, index))
    smoother.commit()
    stats = loop_statistics(z_mean, z_var, index, num_bins)
    window = np.exp(-(np.arange(-2, 3) ** 2) / 8)
    if form == "reference":
        window = gaussian_filter1d(np.array([0, 0, 1.0, 0, 0]), 2.0)
    window = window / window.sum()
    for name, share in (("mu_mean", window), ("mu_var", window**2), ("cov_mean", window)):
        padded = np.pad(stats[name], ((2, 2), (0, 0)), mode="reflect")
        want = [sum(share[k] * padded[b + k] for k in range(5)) for b in range(num_bins)]
        got = getattr(smoother.smoothed, name).numpy()  # by a kernel in float32
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7, err_msg=name)


# -- awkward rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("centres", [(1e4, 1e4, 1e4), (-1e4, 0.0, 1e4)], ids=["together", "apart"])
def test_float32_keeps_its_digits_far_from_zero(centres: tuple[float, ...]) -> None:
    """Spreads of 0.01 around 10,000: squares of plain features would be off by about 10."""
    rng = np.random.default_rng(3)
    index = np.arange(300) % 3
    z_mean = (np.array(centres)[index] + rng.normal(0, 1e-2, 300)).astype(np.float32)[:, None]
    z_var = np.full((300, 1), 1e-4, np.float32)
    want = np.array([z_mean[index == b].astype(np.float64).var() + 1e-4 * 0.99 for b in range(3)])
    m, v, b = torch.as_tensor(z_mean), torch.as_tensor(z_var), torch.as_tensor(index)
    smoother = smoother_of(3, 1)
    for part in range(0, 300, 30):
        smoother.accumulate(m[part : part + 30], v[part : part + 30], b[part : part + 30])
    smoother.commit()
    np.testing.assert_allclose(smoother.stats.cov_mean[:, 0], want, rtol=1e-2)
    np.testing.assert_allclose(smoother.stats.mu_mean[:, 0], centres, atol=1e-2)


# -- streaming, momentum, state -------------------------------------------------------------------


def test_momentum_equals_a_loop_over_epochs() -> None:
    """A bin's first epoch replaces; a bin not seen in an epoch keeps what it had."""
    rng = np.random.default_rng(5)
    smoother = smoother_of(4, 2, momentum=0.8).double()
    running: Stats = {k: np.full((4, 2), np.nan) for k in ("mu_mean", "mu_var", "cov_mean")}
    running["count"] = np.zeros(4)
    for seen in ([0, 1], [1, 2], [0, 2], [1, 2]):  # bin 3 never
        index = np.repeat(seen, 6)
        z_mean, z_var = rng.normal(size=(12, 2)) + 5 * index[:, None], rng.gamma(2.0, size=(12, 2))
        epoch = loop_statistics(z_mean, z_var, index, 4)
        for b in seen:
            for name in ("mu_mean", "mu_var", "cov_mean"):
                old, new = running[name][b], epoch[name][b]
                running[name][b] = 0.8 * old + 0.2 * new if running["count"][b] else new
            running["count"][b] = epoch["count"][b]
        m, v, i = tensors(z_mean, z_var, index)
        for half in (slice(0, 5), slice(5, 12)):
            smoother.accumulate(m[half], v[half], i[half])
        smoother.commit()
        assert not smoother.sums[:, 0].any()
        assert_stats(smoother.stats, running, 1e-7)
        assert_stats(smoother.smoothed, loop_smooth(running, gaussian_kernel(2.0, 2)), 1e-6)


def test_rows_pass_unchanged_until_the_first_commit_and_in_bins_never_seen() -> None:
    z_mean, z_var, index = tensors(*rows(7), dtype=torch.float32)
    for boundary in ("truncate", "reflect"):
        smoother = smoother_of(7, 3, boundary=boundary)
        smoother.accumulate(z_mean, z_var, index)
        mean, var = smoother(z_mean, z_var, index)
        assert torch.equal(mean, z_mean) and var is not None and torch.equal(var, z_var)
        smoother.commit()
        moved, _ = smoother(z_mean, z_var, index)
        assert not torch.allclose(moved, z_mean)
        empty = torch.full_like(index, 2)
        mean, var = smoother(z_mean, z_var, empty)
        assert torch.equal(mean, z_mean) and var is not None and torch.equal(var, z_var)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_bin_of_one_row_leaves_its_rows_alone(momentum: float) -> None:
    """Also after epochs with running means, when the row has moved away from its bin's mean."""
    rng = np.random.default_rng(4)
    index = torch.tensor([0, 0, 0, 0, 1, 2, 2, 2])  # bin 1 has one row
    smoother = smoother_of(3, 2, momentum=momentum).double()
    for _ in range(3):
        z_mean, z_var = tensors(rng.normal(size=(8, 2)), rng.gamma(2.0, size=(8, 2)))
        smoother.accumulate(z_mean, z_var, index)
        smoother.commit()
    assert not smoother.stats.cov_mean[1].any() and smoother.smoothed.cov_mean[1].all()
    z_mean, z_var = tensors(rng.normal(size=(8, 2)), rng.gamma(2.0, size=(8, 2)))
    mean, var = smoother(z_mean, z_var, index)
    assert var is not None
    assert torch.equal(mean[4], z_mean[4]) and torch.equal(var[4], z_var[4])
    assert (mean[:4] != z_mean[:4]).all() and (var[5:] != z_var[5:]).all()
    # One that had more rows in an earlier epoch has a covariance, and is recoloured.
    smoother.accumulate(z_mean[:2], z_var[:2], torch.tensor([1, 1]))
    smoother.commit()
    smoother.accumulate(z_mean[:1], z_var[:1], torch.tensor([1]))
    smoother.commit()
    assert bool(smoother.stats.cov_mean[1].all()) is (momentum > 0)
    mean, _ = smoother(z_mean, z_var, index)
    assert torch.equal(mean[4], z_mean[4]) is (momentum == 0)


# -- laws -----------------------------------------------------------------------------------------


def loop_fds(z: Array, index: Array, num_bins: int, kernel: Callable[[int, int], float]) -> Array:
    """Feature distribution smoothing: features without variance, whitened and recoloured."""
    held = sorted(set(index.tolist()))
    mean = {b: z[index == b].mean(0) for b in held}
    var = {b: ((z[index == b] - mean[b]) ** 2).mean(0) for b in held}
    out = np.empty_like(z)
    for i, b in enumerate(index.tolist()):
        total = sum(kernel(b, c) for c in held)
        mean_s = sum(kernel(b, c) / total * mean[c] for c in held)
        var_s = sum(kernel(b, c) / total * var[c] for c in held)
        ratio = np.clip(var_s / np.maximum(var[b], 1e-30), 0.1, 10)
        out[i] = (z[i] - mean[b]) * np.sqrt(ratio) + mean_s if (index == b).sum() > 1 else z[i]
    return out


@law
@given(st.integers(0, 2**16), st.integers(1, 9), st.integers(1, 40))
def test_zero_variance_is_feature_distribution_smoothing(seed: int, num_bins: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    index = rng.integers(0, num_bins, n)
    z = rng.normal(size=(n, 2)) * 3 + index[:, None]
    want = loop_fds(z, index, num_bins, gaussian_kernel(2.0, 2))
    m, b = tensors(z, index)
    for z_var in (None, torch.zeros_like(m)):
        smoother = smoother_of(num_bins, 2).double()
        smoother.accumulate(m, z_var, b)
        smoother.commit()
        mean, var = smoother(m, z_var, b)
        np.testing.assert_allclose(mean, want, rtol=1e-5, atol=1e-6)
        assert var is None if z_var is None else not var.any()


@law
@given(st.integers(0, 2**16), st.integers(1, 9))
def test_an_identity_kernel_does_not_smooth(seed: int, num_bins: int) -> None:
    """Means stay; VIR:F as printed adds the variance of the bin's mean twice, if the bin has several rows."""
    m, v, b = tensors(*rows(seed, n=30, num_bins=num_bins))
    smoother = smoother_of(num_bins, 3, kernel=None).double()
    smoother.accumulate(m, v, b)
    smoother.commit()
    mean, var = smoother(m, v, b)
    torch.testing.assert_close(mean, m)
    several = (smoother.stats.count[b] > 1).unsqueeze(1)
    torch.testing.assert_close(var, v + 2 * smoother.stats.mu_var[b] * several)
