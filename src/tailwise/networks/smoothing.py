"""Statistics of latent rows per label bin, smoothed over neighbouring bins (VIR:A, VIR:S, VIR:F).

A latent row is a Gaussian with mean and variance (N, D) and a bin index (N,). It may represent a
sample, a sentence pair or a pixel. With zero variances this is feature distribution smoothing
(FDS). No function here loops over bins or rows, or changes its input.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn

from tailwise.core.kernels import Boundary, KernelForm, kernel_matrix
from tailwise.networks.ranks import rank_and_ranks, sum_over_ranks

_FLOOR = 1e-30
_LARGE = 1e6
_CHUNK = 2**16  # rows that are summed at once: the pixels of a batch may be millions
_ROUNDING = 1e-14


@dataclass(frozen=True)
class BinStatistics:
    """Mean and variance of each bin's mean and covariance: statistics of statistics (VIR:A)."""

    count: Tensor  # (B,) rows in each bin
    mu_mean: Tensor  # (B, D)
    mu_var: Tensor  # (B, D)
    cov_mean: Tensor  # (B, D)
    cov_var: Tensor  # (B, D), zero as in the paper unless asked for

    @classmethod
    def identity(cls, num_bins: int, dim: int) -> BinStatistics:
        """Return statistics of empty bins; recolouring from these to these changes nothing."""
        zeros, ones = torch.zeros(num_bins, dim), torch.ones(num_bins, dim)
        return cls(torch.zeros(num_bins, dtype=torch.int64), zeros, zeros.clone(), ones, zeros.clone())

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the five tensors in the order of the constructor."""
        return self.count, self.mu_mean, self.mu_var, self.cov_mean, self.cov_var


@dataclass(frozen=True)
class BinSums:
    """Per-bin sums of latent rows about a reference point, which give VIR:A exactly.

    Sums about a point near the bin's mean keep the digits that plain sums of squares would cancel.
    float64 does not stall after 2^24 rows, and does not cancel if bins lie far apart. Adding rows
    takes the same time for any number of bins.
    """

    count: Tensor  # (B,)
    reference: Tensor  # (B, D) point that offsets are taken from
    moments: Tensor  # (B, M, D) sums of: offset, offset^2, var [, var^2, var offset, var offset^2]

    @classmethod
    def zeros(cls, num_bins: int, dim: int, *, fourth_order: bool = False) -> BinSums:
        """Return empty sums; `fourth_order` adds the sums for the variance of the covariance."""
        return cls(
            torch.zeros(num_bins, dtype=torch.int64),
            torch.zeros(num_bins, dim, dtype=torch.float64),
            torch.zeros(num_bins, 6 if fourth_order else 3, dim, dtype=torch.float64),
        )

    def to(self, device: torch.device) -> BinSums:
        """Move to a device, in float64 if the device supports it."""
        kind = torch.float32 if device.type == "mps" else torch.float64
        return BinSums(self.count.to(device), self.reference.to(device, kind), self.moments.to(device, kind))

    def add_(self, z_mean: Tensor, z_var: Tensor | None, index: Tensor, known: Tensor | None = None) -> None:
        """Add rows in place, without gradient; rows that are not `known` do not count.

        z_mean, z_var: (N, D), index, known: (N,)

        Rows are added in chunks, so that memory in float64 does not grow with their number.
        """
        with torch.no_grad():
            for start in range(0, len(index), _CHUNK):
                part = slice(start, start + _CHUNK)
                given = (None if t is None else t[part] for t in (z_var, known))
                self._add_chunk(z_mean[part], index[part], *given)

    def _add_chunk(self, z_mean: Tensor, index: Tensor, z_var: Tensor | None, known: Tensor | None) -> None:
        mean = z_mean.to(self.moments.dtype)
        var = torch.zeros_like(mean) if z_var is None else z_var.to(self.moments.dtype)
        offset = mean - self.reference[index]
        terms = [offset, offset * offset, var]
        if self.moments.shape[1] > 3:
            terms += [var * var, var * offset, var * offset * offset]
        rows, one = torch.stack(terms, dim=1), torch.ones_like(index)
        if known is not None:
            rows, one = rows * known.reshape(-1, 1, 1), one * known
        self.moments.index_add_(0, index, rows)
        self.count.index_add_(0, index, one)

    def about(self, reference: Tensor) -> BinSums:
        """Return the sums of the same rows about another point. reference: (B, D)"""
        n = self.count.unsqueeze(-1).to(self.moments.dtype)
        shift = self.reference - reference
        offset, square, var, *fourth = self.moments.unbind(1)
        moved_square = square + shift * (2 * offset + n * shift)
        # As in `statistics`: what equal rows leave of this difference is rounding.
        moved_square = torch.where(moved_square > _ROUNDING * (square + n * shift**2), moved_square, 0.0)
        moved = [offset + n * shift, moved_square, var]
        if fourth:
            var_square, var_offset, var_offset_square = fourth
            moved += [
                var_square,
                var_offset + shift * var,
                var_offset_square + shift * (2 * var_offset + shift * var),
            ]
        return BinSums(self.count, reference, torch.stack(moved, dim=1))

    def over_ranks(self) -> BinSums:
        """Return the sums of the rows of all ranks, whose references may differ.

        They meet at the mean of each bin over all ranks, where the squares cancel least.
        """
        if rank_and_ranks()[1] == 1:
            return self
        count = sum_over_ranks(self.count)
        own = self.count.unsqueeze(-1).to(self.moments.dtype)
        total = sum_over_ranks(own * self.reference + self.moments[:, 0])
        mean = total / count.clamp_min(1).unsqueeze(-1)
        moved = self.about(mean)
        return BinSums(count, mean, sum_over_ranks(moved.moments))

    def statistics(self, *, unbiased: bool = False) -> BinStatistics:
        """Return the statistics of each bin's statistics (VIR:A).

        `unbiased` multiplies the covariance of a bin with more than one row by N / (N - 1).

        The covariance is computed as the spread of the means plus (1 - 1/N) of the mean variance,
        which equals ``mean(z_var + z_mean^2) - (mu_var + mu_mean^2)`` and cannot be negative. The
        variance of the covariance, if kept, is the variance of the quadratic form z'Az/N with
        A = I - 11'/N for independent Gaussian z: ``(2 tr(AVAV) + 4 m'AVAm) / N^2``.
        """
        n = self.count.clamp_min(1).unsqueeze(-1).to(self.moments.dtype)
        offset, square, var, *fourth = self.moments.unbind(1)
        offset_mean = offset / n
        spread = square / n - offset_mean**2
        # Equal rows have no spread: what is left of the difference is rounding, not a covariance.
        spread = torch.where(spread > _ROUNDING * square / n, spread, 0.0)
        cov_var = torch.zeros_like(spread)
        if fourth:
            var_square, var_offset, var_offset_square = fourth
            trace = var_square * (1 - 2 / n) + (var / n) ** 2
            drift = var_offset_square - 2 * offset_mean * var_offset + offset_mean**2 * var
            cov_var = (2 * trace.clamp_min(0) + 4 * drift.clamp_min(0)) / n**2
        seen = (self.count > 0).unsqueeze(-1)
        scale = n / (n - 1).clamp_min(1) if unbiased else torch.ones_like(n)
        return BinStatistics(
            count=self.count.clone(),
            mu_mean=torch.where(seen, self.reference + offset_mean, 0.0),
            mu_var=var / n**2,
            cov_mean=torch.where(seen, (spread + var / n * (1 - 1 / n)) * scale, 1.0),
            cov_var=cov_var * scale**2,
        )


def bin_statistics(
    z_mean: Tensor,
    z_var: Tensor | None,
    index: Tensor,
    num_bins: int,
    *,
    fourth_order: bool = False,
) -> BinStatistics:
    """Return the statistics of each bin's statistics for one set of rows (VIR:A).

    z_mean, z_var: (N, D), index: (N,). ``z_var=None`` is zero variance (FDS).

    >>> rows, index = torch.tensor([[1.0], [3.0], [7.0]]), torch.tensor([0, 0, 2])
    >>> stats = bin_statistics(rows, None, index, num_bins=3)
    >>> stats.mu_mean.squeeze().tolist(), stats.cov_mean.squeeze().tolist()
    ([2.0, 0.0, 7.0], [1.0, 1.0, 0.0])
    """
    kind = torch.promote_types(z_mean.dtype, torch.float32)
    sums = BinSums.zeros(num_bins, z_mean.shape[1], fourth_order=fourth_order).to(z_mean.device)
    sums.reference.copy_(z_mean.detach().to(sums.reference.dtype).mean(0))
    sums.add_(z_mean, z_var, index)
    count, *values = sums.statistics().tensors()
    return BinStatistics(count, *(value.to(kind) for value in values))


def row_normalized(kernel: Tensor, count: Tensor, squares: Tensor | None = None) -> Tensor:
    """Return the kernel with rows that sum to 1 over bins with data. kernel: (B, B), count: (B,)

    With `squares` (B, B), return these instead, divided by the squares of the same sums.
    """
    seen = (count > 0).to(kernel.dtype)
    total = (kernel * seen).sum(1, keepdim=True).clamp_min(torch.finfo(kernel.dtype).tiny)
    return kernel * seen / total if squares is None else squares.to(kernel) * seen / total / total


def smooth(stats: BinStatistics, kernel: Tensor, squares: Tensor | None = None) -> BinStatistics:
    """Return statistics averaged over neighbouring bins with data (VIR:S). kernel, squares: (B, B)

    `squares` weights the variances, kernel^2 unless given. A bin without data keeps its statistics, so
    that its rows do not change.
    """
    kernel = kernel.to(stats.mu_mean)
    k = row_normalized(kernel, stats.count)
    seen = (stats.count > 0).unsqueeze(-1)
    k2 = k**2 if squares is None else row_normalized(kernel, stats.count, squares)
    return BinStatistics(
        count=stats.count,
        mu_mean=torch.where(seen, k @ stats.mu_mean, stats.mu_mean),
        mu_var=torch.where(seen, k2 @ stats.mu_var, stats.mu_var),
        cov_mean=torch.where(seen, k @ stats.cov_mean, stats.cov_mean),
        cov_var=torch.where(seen, k2 @ stats.cov_var, stats.cov_var),
    )


def _bounded(ratio: Tensor) -> Tensor:
    """Replace 0/0 by 0 and bound x/0: a covariance may be 0."""
    return ratio.nan_to_num(nan=0.0, posinf=_LARGE).clamp(max=_LARGE)


def recolor(
    z_mean: Tensor,
    z_var: Tensor | None,
    index: Tensor,
    stats: BinStatistics,
    smoothed: BinStatistics,
    clip: tuple[float, float] = (0.1, 10.0),
    self_weight: Tensor | None = None,
    shrink: float = 0.0,
) -> tuple[Tensor, Tensor | None]:
    """Whiten rows by their bin's statistics and recolour them by the smoothed ones (VIR:F).

    z_mean, z_var: (N, D), index: (N,), self_weight: (B,). The ratio of covariances is clipped.

    `shrink`, k, first moves a bin's covariance towards the smoothed one by its count,
    (N cov + k cov~) / (N + k) (VIR:shrink).

    Where the covariance of a bin is 0, as in every dimension of a bin of one row, its rows stay as they
    are, as in published code: the ratio is not defined.

    `self_weight`, the normalised k(b, b), adds the uncertainty of the covariances, which the paper
    leaves out. To first order, the variance of their ratio adds
    ``(z_mean - mu_mean)^2 r^2/4 Var[log(cov~/cov)]`` to the row's variance.
    """
    cov, cov_smooth = stats.cov_mean[index], smoothed.cov_mean[index]
    share: Tensor | float = 1.0  # of the bin's own covariance
    if shrink:
        count = stats.count[index].unsqueeze(-1).to(cov.dtype)
        share = count / (count + shrink)
        cov = share * cov + (1 - share) * cov_smooth
    still = cov == 0
    ratio = (cov_smooth.clamp_min(_FLOOR) / cov.clamp_min(_FLOOR)).clamp(*clip).sqrt()
    offset = z_mean - stats.mu_mean[index]
    mean = torch.where(still, z_mean, offset * ratio + smoothed.mu_mean[index])
    if z_var is None:
        return mean, None
    var = (z_var + stats.mu_var[index]) * ratio + smoothed.mu_var[index]
    if self_weight is not None:
        low, high = cov.clamp_min(_FLOOR), cov_smooth.clamp_min(_FLOOR)
        own, rest = share * stats.cov_var[index], 1 - (1 - share) * _bounded(high / low)
        relative = (
            share * _bounded(own / low / low)
            + rest**2 * _bounded(smoothed.cov_var[index] / high / high)
            - rest * _bounded(2 * self_weight[index].unsqueeze(-1) * own / low / high)
        ).clamp(0, 1)
        var = var + offset**2 * ratio**2 / 4 * relative
    return mean, torch.where(still, z_var, var)


@dataclass(frozen=True, kw_only=True)
class SmoothingConfig:
    """How latent statistics are smoothed over label bins; the defaults are the paper's."""

    kernel: str | None = "gaussian"
    bandwidth: float = 2.0
    radius: int = 2
    form: KernelForm = "paper"
    boundary: Boundary = "truncate"
    momentum: float = 0.9
    clip: tuple[float, float] = (0.1, 10.0)
    shrink: float = 0.0
    """k of VIR:shrink: a bin's covariance counts as N rows, the smoothed one as k; 0 does not shrink."""
    below: int = 0
    """Recolour only rows of bins with fewer training rows than this; 0 recolours all."""
    unbiased: bool = False
    """Divide the covariance of a bin by N - 1, as the published code of FDS does, not by N as in VIR:A."""
    exact: bool = False
    """Compute statistics in an extra pass at the end of an epoch instead of during the training steps."""
    cov_variance: bool = False
    """Keep the variance of the covariance, which is 0 in the paper."""


class LatentSmoother(nn.Module):
    """Collects per-bin sums during an epoch, and smooths rows by the statistics of earlier epochs.

    `accumulate` adds a batch. `commit` ends an epoch: it merges the sums into running statistics with
    momentum (a bin's first epoch replaces them) and smooths these. Rows do not change before the first
    commit. Under `torch.distributed` a commit adds the sums of all ranks, so that the statistics do not
    depend on the number of ranks. Only `commit` waits for other ranks.
    """

    def __init__(self, num_bins: int, dim: int, config: SmoothingConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or SmoothingConfig()
        if not 0 <= config.momentum < 1:
            raise ValueError(f"momentum must lie in [0, 1), got {config.momentum!r}")
        for name in ("shrink", "below"):
            if not 0 <= getattr(config, name) < math.inf:
                raise ValueError(f"{name} must not be negative, got {getattr(config, name)!r}")
        low, high = config.clip
        if not 0 <= low <= high or high == 0:
            raise ValueError(f"clip must be two ratios of covariances, low and high, got {config.clip!r}")
        matrix = partial(
            kernel_matrix,
            num_bins,
            kernel=config.kernel,
            bandwidth=config.bandwidth,
            radius=config.radius,
            form=config.form,
            boundary=config.boundary,
        )
        self.kernel: Tensor
        self.squares: Tensor
        self.stats_count: Tensor
        self.self_weight: Tensor
        self._anchored = False
        for name, squared in (("kernel", False), ("squares", True)):
            value = torch.as_tensor(matrix(squared=squared), dtype=torch.float32)
            self.register_buffer(name, value, persistent=False)
        # Not buffers: DistributedDataParallel would overwrite each rank's sums with those of rank 0,
        # and `float()` or `half()` would round them. They are saved as extra state instead.
        self.sums = BinSums.zeros(num_bins, dim, fourth_order=config.cov_variance)
        self.register_buffer("self_weight", torch.ones(num_bins))
        for role in ("stats", "smoothed"):
            for name, value in vars(BinStatistics.identity(num_bins, dim)).items():
                self.register_buffer(f"{role}_{name}", value)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.sums = self.sums.to(self.self_weight.device)
        return self

    def get_extra_state(self) -> Tensor:
        """Return the sums of the current epoch as one tensor: count, reference, moments. (B, 2 + M, D)"""
        reference = self.sums.reference.unsqueeze(1)
        count = self.sums.count.to(reference.dtype).reshape(-1, 1, 1).expand_as(reference)
        return torch.cat([count, reference, self.sums.moments], dim=1)

    def set_extra_state(self, state: Tensor) -> None:
        """Load the sums of an unfinished epoch."""
        packed = state.to(self.sums.moments)
        self.sums.count.copy_(packed[:, 0, 0])
        self.sums.reference.copy_(packed[:, 1])
        self.sums.moments.copy_(packed[:, 2:])
        self._anchored = False

    @property
    def stats(self) -> BinStatistics:
        """Running statistics of all committed epochs."""
        return self._statistics("stats")

    @property
    def smoothed(self) -> BinStatistics:
        """The running statistics, smoothed."""
        return self._statistics("smoothed")

    def _statistics(self, role: str) -> BinStatistics:
        names = BinStatistics.__dataclass_fields__
        return BinStatistics(**{name: getattr(self, f"{role}_{name}") for name in names})

    @torch.no_grad()
    def accumulate(
        self, z_mean: Tensor, z_var: Tensor | None, index: Tensor, known: Tensor | None = None
    ) -> None:
        """Add a batch of rows to the sums of this epoch; rows that are not `known` do not count.

        z_mean, z_var: (N, D), index, known: (N,)
        """
        if not self._anchored:
            self._anchor(z_mean)
        self.sums.add_(z_mean, z_var, index, known)

    def _anchor(self, z_mean: Tensor) -> None:
        """Use the mean of the first batch as the reference point, unless a state was loaded."""
        self._anchored = True
        known = self.sums.count.any() | self.stats_count.any()
        mean = z_mean.detach().to(self.sums.reference.dtype).sum(0) / max(len(z_mean), 1)
        self.sums.reference.copy_(torch.where(known, self.sums.reference, mean))

    @torch.no_grad()
    def commit(self) -> None:
        """End an epoch: merge its sums into the running statistics, smooth these, clear the sums."""
        sums = self.sums.over_ranks()
        new, old = sums.statistics(unbiased=self.config.unbiased), self.stats
        momentum = self.config.momentum
        kept = torch.where(old.count > 0, momentum, 0.0)
        kept = torch.where(new.count > 0, kept, 1.0).unsqueeze(-1)
        merged = BinStatistics(
            torch.where(new.count > 0, new.count, old.count),
            *(kept * o + (1 - kept) * n for o, n in zip(old.tensors()[1:], new.tensors()[1:], strict=True)),
        )
        for role, value in (("stats", merged), ("smoothed", smooth(merged, self.kernel, self.squares))):
            for name, tensor in vars(value).items():
                getattr(self, f"{role}_{name}").copy_(tensor)
        self.self_weight.copy_(row_normalized(self.kernel, merged.count).diagonal())
        # The next epoch's reference point; an empty bin keeps its own.
        seen = merged.count.unsqueeze(-1) > 0
        self.sums.reference.copy_(torch.where(seen, merged.mu_mean, sums.reference))
        self.reset()

    def reset(self) -> None:
        """Clear the sums of the current epoch."""
        self._anchored = False
        self.sums.count.zero_()
        self.sums.moments.zero_()

    def forward(self, z_mean: Tensor, z_var: Tensor | None, index: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return rows recoloured by their bin's smoothed statistics (VIR:F). (N, D) each"""
        own = self.self_weight if self.config.cov_variance else None
        clip, shrink = self.config.clip, self.config.shrink
        mean, var = recolor(z_mean, z_var, index, self.stats, self.smoothed, clip, own, shrink)
        if not self.config.below:
            return mean, var
        sparse = (self.stats_count[index] < self.config.below).unsqueeze(-1)
        kept = None if var is None or z_var is None else torch.where(sparse, var, z_var)
        return torch.where(sparse, mean, z_mean), kept
