"""One Normal or Student-t over cells of constant weight: probabilities and moments (VIR:dial)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

from tailwise.core.distributions import NIG, Normal
from tailwise.core.labels import Array
from tailwise.core.student_t import log_gamma_ratio

Index = NDArray[np.intp]
_NEAR_2 = 1e-6


class Member(NamedTuple):
    """One Normal, or one Student-t if it has degrees of freedom, for each of N predictions."""

    weight: Array  # (N,)
    location: Array  # (N,)
    scale: Array  # (N,)
    df: Array | None  # (N,)

    def standardized(self, y: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            z = (y - self.location) / self.scale
        return np.where(np.isnan(z) & (self.scale == 0), 0.0, z)

    def tails(self, z: Array) -> tuple[Array, Array]:
        """Probabilities below and above z, each without cancellation."""
        tail = special.ndtr(-np.abs(z)) if self.df is None else special.stdtr(self.df, -np.abs(z))
        return np.where(z < 0, tail, 1 - tail), np.where(z < 0, 1 - tail, tail)

    def log_moment(self, z: Array) -> Array:
        """Log of the integral of t p(t) from z to infinity, for the standardised member."""
        if self.df is None:
            return np.asarray(-(z**2) / 2 - math.log(2 * math.pi) / 2)
        v = self.df
        log_constant = log_gamma_ratio(torch.from_numpy(v / 2)).numpy() - np.log(np.pi * v) / 2
        with np.errstate(divide="ignore", invalid="ignore"):  # no mean with v <= 1
            return np.asarray(log_constant + np.log(v / (v - 1)) - (v - 1) / 2 * np.log1p(z**2 / v))


def student_or_normal(members: Normal | NIG) -> Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]:
    """Return a function of standardised labels: probabilities below and above, and partial mean beyond."""
    df = (2 * members.alpha).detach().double().cpu().numpy() if isinstance(members, NIG) else None
    one = np.ones(members.shape)
    member = Member(one, one, one, df)

    def standard(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        at = z.detach().double().cpu().numpy()
        with np.errstate(over="ignore"):  # of points
            found = (*member.tails(at), np.exp(member.log_moment(at)))
        below, above, moment = (torch.from_numpy(np.asarray(value)).to(z) for value in found)
        return below, above, moment

    return standard


class Cell(NamedTuple):
    """The cell of each of some labels or levels. (L, N) each"""

    below: Array  # probability below the cell before the tilt
    from_here: Array  # probability from its lower cut on
    above: Array  # probability above the cell
    mass: Array  # probability of the cell
    before: Array  # probability below the cell after the tilt
    share: Array  # probability of the cell after the tilt


class CellTable(NamedTuple):
    """Probabilities by cell, before and after the tilt."""

    below: Array  # (C - 1, N) below each cut before the tilt
    above: Array  # (C - 1, N) above each cut before the tilt
    mass: Array  # (C, N) of each cell before the tilt
    share: Array  # (C, N) of each cell after the tilt

    def at(self, index: Index) -> Cell:
        """Look cells up by number. (L, N)"""
        edge = np.zeros((1, self.mass.shape[1]))
        below, from_here = np.concatenate([edge, self.below]), np.concatenate([edge + 1, self.above])
        above, before = np.concatenate([self.above, edge]), np.concatenate([edge, self.share.cumsum(0)[:-1]])
        columns = (below, from_here, above, self.mass, before, self.share)
        return Cell(*(np.take_along_axis(column, index, 0) for column in columns))

    def cdf(self, index: Index, below: Array, above: Array) -> Array:
        """Probability below labels in the given cells, from those below and above them before the tilt."""
        cell = self.at(index)
        # The smaller tail does not cancel.
        part = np.where(cell.below > 0.5, cell.from_here - above, below - cell.below)
        return np.clip(cell.before + cell.share * ratio(part, cell.mass), 0.0, 1.0)


def ratio(part: Array, whole: Array) -> Array:
    """part / whole between 0 and 1, and 0 where the whole is 0."""
    return np.clip(np.divide(part, whole, out=np.zeros_like(part), where=whole != 0), 0.0, 1.0)


def log_sum(logs: Array) -> Array:
    """Log of the sum of exponentials over the first dimension."""
    top = logs.max(0)
    return np.asarray(top + np.log(np.exp(logs - top).sum(0)))


class TiltedMember(NamedTuple):
    """One member under the tilt; its moments are those of the standardised label."""

    table: CellTable
    log_z: Array  # (N,) log of the mean weight
    steps: Array  # (C - 1, N) what each cut adds to the mean
    mean: Array  # (N,)
    variance: Array  # (N,)


def tilted_member(member: Member, cuts: Array, log_w: Array) -> TiltedMember:
    """Tilt one member by the weights (C, 1) of the cells between cuts (C - 1, 1 or N).

    With h(z) the integral of t p(t) from z to infinity, the mean over a cell (a, b) is h(a) - h(b).
    Summed over cells, each cut c adds h(c) times the difference of the weights above and below it. The
    second moment has c h(c) in place of h(c), plus a constant.
    """
    closed = bool(log_w[0, 0] == log_w[-1, 0] == -np.inf)
    if closed and member.df is not None:
        # Between two bounds the variance is finite for any df; at 2 the formula is 0 / 0.
        member = member._replace(df=np.where(np.abs(member.df - 2) < _NEAR_2, 2 + _NEAR_2, member.df))
    z = member.standardized(cuts)
    below, above = member.tails(z)
    edge = np.zeros((1, below.shape[1]))
    low, high = np.concatenate([edge, below]), np.concatenate([below, edge + 1])
    over, beyond = np.concatenate([edge + 1, above]), np.concatenate([above, edge])
    # The tail that is small does not cancel.
    mass = np.maximum(np.where(low > 0.5, over - beyond, high - low), 0.0)
    with np.errstate(divide="ignore"):
        logs = log_w + np.log(mass)
    log_z = log_sum(logs)
    log_h = member.log_moment(z) - log_z
    steps = np.exp(log_w[1:] + log_h) - np.exp(log_w[:-1] + log_h)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean, second = steps.sum(0), np.where(steps == 0, 0.0, steps * z).sum(0)
        if member.df is None:
            square = 1 + second
        else:
            v = member.df
            mean = np.where(v > 1, mean, np.nan)
            square = np.where((v > 2) | closed, (v + (v - 1) * second) / (v - 2), np.inf)
    table = CellTable(below, above, mass, np.exp(logs - log_z))
    return TiltedMember(table, log_z, steps, mean, np.maximum(square - mean**2, 0.0))
