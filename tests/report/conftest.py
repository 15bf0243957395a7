"""Tiny fitted models, scored on the same test rows; and lineups of models whose predictions are made."""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

from tailwise import TailRegressor
from tailwise.calibration.calibration import Labels
from tailwise.distributions.members import Normal
from tailwise.labels.bins import LabelBins
from tailwise.model import base as bases
from tailwise.report import page as page_module
from tailwise.report.contest import PLAIN
from tailwise.report.page import About, Drivers, drivers_of, model_page
from tailwise.report.scores import (
    BOOSTER,
    CONSTANT,
    LEVELS,
    OTHER,
    Baseline,
    Lineup,
    Scores,
    Seen,
    fit_rival,
    line_up,
    score_constant,
)
from tailwise.report.verdict import Verdict, judge

Rows = tuple[pd.DataFrame, np.ndarray]


def make_rows(count: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 3))
    y = np.round(2 * np.exp(x[:, 0]) + 0.3 * rng.normal(size=count))
    return pd.DataFrame(x, columns=["a", "b", "c"]), y


@pytest.fixture(scope="session")
def new_rows() -> Rows:
    """Test rows, inputs and labels."""
    return make_rows(300, seed=1)


@pytest.fixture(scope="session", autouse=True)
def few_trees() -> Iterator[None]:
    """Boosted trees that are fitted quickly; nothing here depends on how good they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bases, "TREES", 60)
        yield


@pytest.fixture(scope="session")
def models() -> dict[str, TailRegressor]:
    settings = {"vir": {"method": "vir"}, "vanilla": PLAIN}
    return {
        name: TailRegressor(epochs=3, random_state=0, **chosen).fit(*make_rows(700, seed=0))
        for name, chosen in settings.items()
    }


@pytest.fixture(scope="session")
def held(models: dict[str, TailRegressor]) -> TailRegressor:
    """VIR, which holds boosted trees as its rival."""
    model = copy(models["vir"])
    trees = fit_rival(model, *make_rows(700, seed=0))
    assert trees is not None
    model.model_ = replace(model.model_, rivals=(trees,))
    return model


@pytest.fixture(scope="session")
def lineup(models: dict[str, TailRegressor], held: TailRegressor, new_rows: Rows) -> Lineup:
    """VIR beside a plain network, CatBoost and a constant."""
    x, y = new_rows
    other = replace(Seen(models["vanilla"], x).scores(y), title="plain network")
    return line_up(held, Seen(held, x), y, other=other)


@pytest.fixture(scope="session")
def vir(lineup: Lineup) -> Scores:
    return lineup.ours


@pytest.fixture(scope="session")
def plain(lineup: Lineup) -> Scores:
    return lineup.baselines["baseline"]


@pytest.fixture(scope="session")
def catboost(lineup: Lineup) -> Scores:
    return lineup.baselines["base"]


@pytest.fixture(scope="session")
def about() -> About:
    """What a page says besides model and scores."""
    command = f"tailwise fit shells.csv --target 'rings & <things>' --report {'long_' * 20}.html"
    return About("rings & <things>", "shells.csv", command)


@pytest.fixture(scope="session")
def drivers(models: dict[str, TailRegressor], vir: Scores) -> Drivers:
    drivers = drivers_of(models["vir"], vir)
    assert drivers is not None
    return drivers


@pytest.fixture(scope="session")
def page(lineup: Lineup, drivers: Drivers, held: TailRegressor, about: About, new_rows: Rows) -> str:
    """The page about VIR beside its baselines, with names that must be escaped."""
    hostile = replace(
        drivers,
        table={"<script>a": drivers.table["a"]},
        reasons=dict.fromkeys(drivers.reasons, [[("<i>why", 1.0)]] * 5),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_module, "drivers_of", lambda *_, **__: hostile)
        return model_page(held, judge(lineup), about, new_rows[0].assign(a="<i>a</i>"))


# -- models that predict what they are told --------------------------------------------------------


Floats = NDArray[np.float64]
TRAIN = np.repeat(np.arange(6.0), [300, 200, 120, 60, 10, 5])
"""Training labels: 0 to 2 are common, 3 is less common, 4 and 5 are rare."""
NEVER = ("as good", "all the same", "Either will do", "nan", "inf", "None")
"""Words that claim more than test rows can show, and values that are no words."""


def scored(
    y: Floats,
    mean: Floats,
    reach: Floats | float = 1.33,
    title: str = "VIR",
    train: Floats = TRAIN,
    ends: tuple[Floats, Floats] | None = None,
    bins: LabelBins | None = None,
) -> Scores:
    """A model that predicts `mean`, with intervals of this half-width or with these ends."""
    distribution = Normal(torch.from_numpy(np.asarray(mean, np.float64)), 1.0)
    labels = Labels(bins or LabelBins.from_labels(train), quantiles=train)
    predicted = Baseline(distribution, dict.fromkeys(LEVELS, ends or (mean - reach, mean + reach)))
    return Scores(title, y, labels, predicted)


def some(scores: Scores, rows: NDArray[np.int64]) -> Scores:
    """The scores of these rows."""
    ends = {level: tuple(end[rows] for end in scores.interval(level)) for level in LEVELS}
    return replace(scores, y=scores.y[rows], predicted=Baseline(scores.distribution[rows], ends))


def lined_up(ours: Scores, *rivals: Scores) -> Lineup:
    """A model beside up to two rivals, CatBoost and a second model, and the constant of the labels."""
    names = {BOOSTER: "CatBoost"} if len(rivals) == 1 else {OTHER: "other", BOOSTER: "CatBoost"}
    made = {
        name: replace(rival, title=title) for (name, title), rival in zip(names.items(), rivals, strict=False)
    }
    return Lineup(ours, made | {CONSTANT: score_constant(ours)})


def dialled(scores: Scores, plain: Scores) -> Scores:
    """The scores at emphasis 0.5 of a model whose scores at emphasis 0 are `plain`."""
    vars(scores).update(emphasis=0.5, dial=SimpleNamespace(turned=(plain,)))
    return scores


@dataclass(frozen=True)
class Table:
    """Test labels by region, and the errors of models whose truth is known."""

    y: Floats
    seed: int = 0
    std: float = 0.8
    """Standard deviation of the errors that no model can avoid."""

    @classmethod
    def of(
        cls, common: int = 2000, medium: int = 200, rare: int = 100, seed: int = 0, std: float = 0.8
    ) -> "Table":
        """So many test rows with labels 0 to 2, 3, and 4 to 5."""
        rng = np.random.default_rng(seed)
        parts = [rng.integers(0, 3, common), np.full(medium, 3), rng.integers(4, 6, rare)]
        return cls(np.concatenate(parts).astype(np.float64), seed, std)

    @property
    def noise(self) -> Floats:
        """Errors that no model can avoid."""
        return np.random.default_rng([self.seed, 0]).normal(0, self.std, self.y.size)

    def model(
        self, common: float = 0.0, rare: float = 0.0, *, jitter: float = 0.1, seed: int = 9, **more: Any
    ) -> Scores:
        """Predictions whose error beyond the unavoidable one is that for common and for rare labels.

        A positive number pulls rare predictions towards common labels and scatters common ones. `jitter` is
        what another seed of training changes.
        """
        rng = np.random.default_rng([self.seed, seed])
        off = rng.normal(0, 1, self.y.size)
        mean = self.y + self.noise + jitter * off + common * rng.normal(0, 1, self.y.size) * (self.y < 4)
        return scored(self.y, mean - rare * (self.y >= 4), **more)

    def ignorant(self, seed: int = 9, **more: Any) -> Scores:
        """Predictions that have nothing to do with the labels."""
        rng = np.random.default_rng([self.seed, seed])
        return scored(self.y, 1 + 0.1 * rng.normal(size=self.y.size), **more)


def said(lineup: Lineup) -> Verdict:
    """The verdict, once it has been searched for these words."""
    verdict = judge(lineup)
    assert not any(word in text_of(verdict) for word in NEVER), text_of(verdict)
    return verdict


def text_of(verdict: Verdict) -> str:
    return " ".join((verdict.headline, *verdict.sentences, verdict.advice))
