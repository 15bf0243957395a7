"""Tiny fitted models, scored on the same test rows, and what a page says about them."""

from collections.abc import Iterator
from copy import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tailwise import TailRegressor
from tailwise.model import base as bases
from tailwise.report import page as page_module
from tailwise.report.contest import PLAIN
from tailwise.report.page import About, Drivers, drivers_of, model_page
from tailwise.report.scores import Lineup, Scores, Seen, fit_rival, line_up
from tailwise.report.verdict import judge

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
