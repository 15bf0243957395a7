"""Statistics of latent rows per label bin, smoothed over neighbouring bins (VIR:A, VIR:S, VIR:F).

A latent row is a Gaussian with mean and variance (N, D) and a bin index (N,). It may represent a
sample, a sentence pair or a pixel. With zero variances this is feature distribution smoothing
(FDS). No function here loops over bins or rows, or changes its input.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn

from tailwise.labels.bins import LabelBins
from tailwise.labels.kernels import Boundary, KernelForm, Window, kernel_matrix
from tailwise.networks.ranks import sum_over_ranks
from tailwise.options import Between, Count, NotNegative, Positive, Share

Kernel = Literal["gaussian", "laplacian", "triangular"]
Radius = Annotated[int, Between(0, 10_000)]
_FLOOR = 1e-30
_CHUNK = 2**16  # rows that are summed at once: the pixels of a batch may be millions
_ROUNDING = 1e-15  # of a sum of squares


class BinStatistics(NamedTuple):
    """Mean and variance of each bin's mean and covariance: statistics of statistics (VIR:A)."""

    count: Tensor  # type: ignore[assignment]  # (B,) rows in each bin
    mu_mean: Tensor  # (B, D)
    mu_var: Tensor  # (B, D)
    cov_mean: Tensor  # (B, D); its variance is 0, as in the paper


def empty_sums(num_bins: int, dim: int) -> Tensor:
    """Return sums of no rows, from which VIR:A follows: of 1, z_mean, z_mean^2 and z_var. (B, 1 + 3 D)

    float64 does not stall after 2^24 rows, and keeps digits that squares of features far from 0 would cancel.
    """
    return torch.zeros(num_bins, 1 + 3 * dim, dtype=torch.float64)


@torch.no_grad()
def add_rows(
    sums: Tensor, z_mean: Tensor, z_var: Tensor | None, index: Tensor, labelled: Tensor | None = None
) -> None:
    """Add rows in place; rows that are not `labelled` do not count.

    z_mean, z_var: (N, D), index, labelled: (N,)

    It takes the same time for any number of bins. Chunks keep memory in float64 from growing with the rows.
    """
    for start in range(0, len(index), _CHUNK):
        part = slice(start, start + _CHUNK)
        mean = z_mean[part].to(sums.dtype)
        var = torch.zeros_like(mean) if z_var is None else z_var[part].to(sums.dtype)
        rows = torch.cat([torch.ones_like(mean[:, :1]), mean, mean * mean, var], dim=1)
        if labelled is not None:
            rows = rows * labelled[part].unsqueeze(-1)
        sums.index_add_(0, index[part], rows)


def statistics_of(sums: Tensor, *, unbiased: bool = False) -> BinStatistics:
    """Return the statistics of each bin's statistics (VIR:A). sums: (B, 1 + 3 D)

    `unbiased` multiplies the covariance of a bin with more than one row by N / (N - 1).

    The covariance is computed as the spread of the means plus (1 - 1/N) of the mean variance,
    which equals ``mean(z_var + z_mean^2) - (mu_var + mu_mean^2)`` and cannot be negative.
    """
    dim = sums.shape[1] // 3
    count, total, square, var = sums.split((1, dim, dim, dim), dim=1)
    n = count.clamp_min(1)
    mean = total / n
    spread = square / n - mean**2
    # Equal rows have no spread: what is left of the difference is rounding, not a covariance.
    spread = torch.where(spread > _ROUNDING * square, spread, 0.0)
    scale = n / (n - 1).clamp_min(1) if unbiased else 1.0
    return BinStatistics(
        count=count[:, 0].long(),
        mu_mean=mean,
        mu_var=var / n**2,
        cov_mean=torch.where(count > 0, (spread + var / n * (1 - 1 / n)) * scale, 1.0),
    )


def smooth(stats: BinStatistics, kernel: Tensor, squares: Tensor) -> BinStatistics:
    """Return statistics averaged over neighbouring bins with data (VIR:S). kernel, squares: (B, B)

    The rows of the kernel sum to 1 over these bins, and `squares`, which weights variances, is divided by the
    squares of the same sums. A bin without data keeps its statistics, so that its rows do not change.
    """
    kernel, held = kernel.to(stats.mu_mean), (stats.count > 0).to(stats.mu_mean)
    total = (kernel * held).sum(1, keepdim=True).clamp_min(torch.finfo(kernel.dtype).tiny)
    k, k2 = kernel * held / total, squares.to(kernel) * held / total / total
    seen = (stats.count > 0).unsqueeze(-1)
    return BinStatistics(
        count=stats.count,
        mu_mean=torch.where(seen, k @ stats.mu_mean, stats.mu_mean),
        mu_var=torch.where(seen, k2 @ stats.mu_var, stats.mu_var),
        cov_mean=torch.where(seen, k @ stats.cov_mean, stats.cov_mean),
    )


def recolor(
    z_mean: Tensor,
    z_var: Tensor | None,
    index: Tensor,
    stats: BinStatistics,
    smoothed: BinStatistics,
    clip: tuple[float, float] = (0.1, 10.0),
) -> tuple[Tensor, Tensor | None]:
    """Whiten rows by their bin's statistics and recolour them by the smoothed ones (VIR:F).

    z_mean, z_var: (N, D), index: (N,). The ratio of covariances is clipped.

    Where the covariance of a bin is 0, as in every dimension of a bin of one row, its rows stay as they
    are, as in published code: the ratio is not defined.
    """
    cov, cov_smooth = stats.cov_mean[index], smoothed.cov_mean[index]
    still = cov == 0
    ratio = (cov_smooth.clamp_min(_FLOOR) / cov.clamp_min(_FLOOR)).clamp(*clip).sqrt()
    mean = torch.where(still, z_mean, (z_mean - stats.mu_mean[index]) * ratio + smoothed.mu_mean[index])
    if z_var is None:
        return mean, None
    var = (z_var + stats.mu_var[index]) * ratio + smoothed.mu_var[index]
    return mean, torch.where(still, z_var, var)


def recomputing() -> bool:
    """Whether a backward pass runs this part of a forward pass again, for activation checkpointing."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


class NoSmoothing(nn.Module):
    """Latents as they are."""

    at_inference = False

    def accumulate(
        self, z_mean: Tensor, z_var: Tensor | None, index: Tensor, labelled: Tensor | None = None
    ) -> None:
        """Collect nothing."""

    def commit(self) -> None:
        """End an epoch."""

    def forward(self, z_mean: Tensor, z_var: Tensor | None, index: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the same rows."""
        return z_mean, z_var


class LatentSmoother(nn.Module):
    """Collects per-bin sums during an epoch, and smooths rows by the statistics of earlier epochs.

    `accumulate` adds a batch. `commit` ends an epoch: it merges the sums into running statistics with
    momentum (a bin's first epoch replaces them) and smooths these. Rows do not change before the first
    commit. Under `torch.distributed` a commit adds the sums of all ranks, so that the statistics do not
    depend on the number of ranks. Only `commit` waits for other ranks.

    Rows belong to member 0, 1, ... in turn; the rows of one label are consecutive. Dimensions do not mix, so
    K members of D dimensions are kept as one latent of K D dimensions.

    Options: the kernel over label bins, see `tailwise.networks.parts.density_weights`; its `boundary` at the
    ends of the label range; `clip`, the limits of the ratio of covariances. `below` recolours only rows of
    bins with fewer training rows, 0 all. `unbiased` divides a bin's covariance by N - 1, as the published
    code of FDS does, not by N as in VIR:A. With `at_inference`, predictions recolour latents too, by the bin
    of a first prediction.
    """

    def __init__(
        self,
        dim: int,
        bins: LabelBins,
        members: int = 1,
        *,
        kernel: Kernel | None = "gaussian",
        bandwidth: Positive = 2.0,
        radius: Radius = 2,
        form: KernelForm = "paper",
        boundary: Boundary = "truncate",
        momentum: Share = 0.9,
        clip: tuple[NotNegative, Positive] = (0.1, 10.0),
        below: Count = 0,
        unbiased: bool = False,
        at_inference: bool = False,
    ) -> None:
        super().__init__()
        if clip[0] > clip[1]:
            raise ValueError(f"clip must be two ratios of covariances, low and high, got {clip!r}")
        self.dim, self.members = dim, members
        self.momentum, self.clip, self.below = momentum, clip, below
        self.unbiased, self.at_inference = unbiased, at_inference
        self.stats_count: Tensor
        window: Window = {"kernel": kernel, "bandwidth": bandwidth, "radius": radius}
        self.kernel, self.squares = (
            nn.Buffer(torch.as_tensor(matrix, dtype=torch.float32), persistent=False)
            for matrix in (
                kernel_matrix(len(bins), **window, form=form, boundary=boundary, squared=squared)
                for squared in (False, True)
            )
        )
        # Not buffers: DistributedDataParallel would overwrite each rank's sums with those of rank 0,
        # and `float()` or `half()` would round them. They are saved as extra state instead.
        self.sums = empty_sums(len(bins), members * dim)
        empty = statistics_of(self.sums)  # recolouring from these to these changes nothing
        for role in ("stats", "smoothed"):
            for name, value in empty._asdict().items():
                kind = value.dtype if name == "count" else torch.float32
                self.register_buffer(f"{role}_{name}", value.to(kind, copy=True))

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        device = self.stats_count.device
        self.sums = self.sums.to(device, torch.float32 if device.type == "mps" else torch.float64)
        return self

    def get_extra_state(self) -> Tensor:
        """Return the sums of the current epoch. (B, 1 + 3 K D)"""
        return self.sums

    def set_extra_state(self, state: Tensor) -> None:
        """Load the sums of an unfinished epoch."""
        self.sums.copy_(state)

    @property
    def stats(self) -> BinStatistics:
        """Running statistics of all committed epochs. (B, K D)"""
        return self._statistics("stats")

    @property
    def smoothed(self) -> BinStatistics:
        """The running statistics, smoothed. (B, K D)"""
        return self._statistics("smoothed")

    def _statistics(self, role: str) -> BinStatistics:
        return BinStatistics(*(getattr(self, f"{role}_{name}") for name in BinStatistics._fields))

    def accumulate(
        self, z_mean: Tensor, z_var: Tensor | None, index: Tensor, labelled: Tensor | None = None
    ) -> None:
        """Add a batch of rows to the sums of this epoch; rows that are not `labelled` do not count.

        z_mean, z_var: (N K, D), index, labelled: (N K,)
        """
        if recomputing():
            return
        wide = (-1, self.members * self.dim)
        var = None if z_var is None else z_var.reshape(wide)
        labelled = None if labelled is None else labelled[:: self.members]
        add_rows(self.sums, z_mean.reshape(wide), var, index[:: self.members], labelled)

    @torch.no_grad()
    def commit(self) -> None:
        """End an epoch: merge its sums into the running statistics, smooth these, clear the sums."""
        new, old = statistics_of(sum_over_ranks(self.sums), unbiased=self.unbiased), self.stats
        kept = torch.where(old.count > 0, self.momentum, 0.0)
        kept = torch.where(new.count > 0, kept, 1.0).unsqueeze(-1)
        merged = BinStatistics(
            torch.where(new.count > 0, new.count, old.count),
            *(kept * o + (1 - kept) * n for o, n in zip(old[1:], new[1:], strict=True)),
        )
        for role, value in (("stats", merged), ("smoothed", smooth(merged, self.kernel, self.squares))):
            for name, tensor in value._asdict().items():
                getattr(self, f"{role}_{name}").copy_(tensor)
        self.sums.zero_()

    def forward(self, z_mean: Tensor, z_var: Tensor | None, index: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return rows recoloured by their bin's smoothed statistics (VIR:F). (N K, D), (N K,)"""
        member = torch.arange(self.members, device=index.device)
        place = (index.reshape(-1, self.members) * self.members + member).flatten()
        stats, smoothed = self._by_member(self.stats), self._by_member(self.smoothed)
        mean, var = recolor(z_mean, z_var, place, stats, smoothed, self.clip)
        if not self.below:
            return mean, var
        sparse = (self.stats_count[index] < self.below).unsqueeze(-1)
        kept = None if var is None or z_var is None else torch.where(sparse, var, z_var)
        return torch.where(sparse, mean, z_mean), kept

    def _by_member(self, stats: BinStatistics) -> BinStatistics:
        """Statistics (B, K D) as (B K, D)."""
        count, *values = stats
        return BinStatistics(
            count.repeat_interleave(self.members), *(value.reshape(-1, self.dim) for value in values)
        )


SMOOTHINGS: dict[str, type[LatentSmoother]] = {"statistics": LatentSmoother}
"""Smoothings by name; each is called with the size of the latent, the label bins and the members."""
