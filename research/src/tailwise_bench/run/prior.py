"""The search for the prior of VIR's head as the paper describes it: a grid, then random in a smaller range.

`choose_defaults` runs it on the development data with `PriorStudy`. The best prior is compared with the
present one on the other seeds, by the same rule as every other default.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tailwise.methods import available_methods, get_method
from tailwise_bench.run.search import DIGITS, SEED

OPTION = "head.prior"
GRID: dict[str, tuple[float, ...]] = {
    "nu": (0.01, 0.1, 1.0),
    "alpha": (1.5, 2.5),
    "beta": (0.01, 0.1, 1.0),
}
"""Values of the grid, on standardised labels. gamma0 is always 0, the mean label."""
FACTOR = 10**0.5
"""Random values of nu and beta lie within this factor of the best value of the grid, on a log scale."""
STEP, LEAST_ALPHA = 0.5, 1.5
"""Those of alpha lie within this step of it, but not below 1.5, the paper's limit."""


def searched_methods() -> list[str]:
    """Return the methods whose head has a prior with a proper alpha, so that this search makes sense."""
    priors = {name: get_method(name).parts.head.options.get("prior") for name in available_methods()}
    return [name for name, prior in priors.items() if prior is not None and prior[2] >= LEAST_ALPHA]


class PriorStudy:
    """Proposes priors one after the other and takes their losses; lower is better.

    The first is the present prior, then the whole grid, then random ones around its best point until there
    are `trials`. It is deterministic: after the same losses it proposes the same priors.
    """

    def __init__(self, method: str, trials: int) -> None:
        if method not in searched_methods():
            raise ValueError(
                f"{method} has no prior to search; these have one: {', '.join(searched_methods())}"
            )
        present = tuple(map(float, get_method(method).parts.head.options["prior"]))
        grid = [(0.0, *point) for point in itertools.product(*GRID.values())]
        self.trials = trials
        self.waiting = [present, *(point for point in grid if point != present)]
        self.told: dict[tuple[float, ...], float] = {}
        self._rng = np.random.default_rng(SEED)
        self._asked: tuple[float, ...] = present

    def ask(self) -> dict[str, Any] | None:
        """Return the next configuration; None after `trials`."""
        if len(self.told) >= self.trials:
            return None
        point = self.waiting.pop(0) if self.waiting else self._drawn()
        while point in self.told:
            point = self._drawn()
        self._asked = point
        return {OPTION: point}

    def _drawn(self) -> tuple[float, ...]:
        _, nu, alpha, beta = min(self.told, key=self.told.__getitem__)
        factors = FACTOR ** self._rng.uniform(-1, 1, 2)
        values = nu * factors[0], alpha + self._rng.uniform(-STEP, STEP), beta * factors[1]
        found = [float(f"{value:.{DIGITS}g}") for value in values]
        return 0.0, found[0], max(found[1], LEAST_ALPHA), found[2]

    def tell(self, loss: float) -> None:
        """Take the loss of the last prior; infinity means that it failed."""
        self.told[self._asked] = loss
