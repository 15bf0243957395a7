"""Which columns drive the tail, and the reasons of the riskiest rows."""

from copy import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tailwise import TailRegressor
from tailwise.explanations import importance, shapley
from tailwise.model.inputs import TensorInputs
from tailwise.report import drivers as drivers_module
from tailwise.report.answers import row_tables, shown_rows
from tailwise.report.drivers import Drivers, _drivers, _reasons_text, drivers_of
from tailwise.report.scoring import Scored

Rows = tuple[pd.DataFrame, np.ndarray]


def test_the_column_behind_the_labels_comes_first(drivers: Drivers) -> None:
    assert drivers.table[0].column == "a" and len(drivers.table) == 3
    assert drivers.text.startswith(
        "The error for the rarest 15% of the labels increases most if a is shuffled"
    )
    assert (
        drivers.table[0].rare.startswith("+")
        and drivers.table[0].width[0].isdigit()
        and " ± " in drivers.table[0].rare
    )


def test_reasons_are_those_of_the_rows_shown(
    drivers: Drivers, models: dict[str, TailRegressor], vir: Scored, new_rows: Rows
) -> None:
    widest = shown_rows(vir)["Widest intervals"]
    values = shapley(
        models["vir"], new_rows[0].iloc[widest], new_rows[0], of="width", background_rows=50
    ).reasons(3)
    assert drivers.reasons["Widest intervals"] == tuple(_reasons_text(each) for each in values)
    table = row_tables(vir, new_rows[0], reasons=drivers.reasons)[0]
    assert table.columns[5] == "reasons" and table.columns[6] == "a"
    assert [row[5] for row in table.rows] == list(drivers.reasons["Largest errors"])
    assert drivers.reasons["Largest errors"][0].startswith("a\u00a0")


def test_the_page_shows_them_escaped(page: str, drivers: Drivers) -> None:
    section = page.split("Which columns drive the tail</h2>")[1].split("Figures by region")[0]
    assert drivers.text in section and drivers.table[0].rare in section
    assert section.count("&lt;i&gt;why") == 10 and "&lt;script&gt;a" in section and "<script" not in section


def test_nothing_is_said_of_pictures_few_rows_or_very_many_columns(
    models: dict[str, TailRegressor], vir: Scored, new_rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drivers_module, "BUDGET", 100)
    assert drivers_of(models["vir"], vir, new_rows[0]) is None
    pictures = copy(models["vir"])
    pictures.model_ = replace(pictures.model_, inputs=TensorInputs())
    assert drivers_of(pictures, vir, new_rows[0]) is None


def test_words_for_columns_that_do_not_matter(
    models: dict[str, TailRegressor], new_rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = importance(models["vir"], *new_rows, repeats=2, max_rows=60)
    none = _drivers(table.assign(importance=-0.1, spread=1.0, reference=0.5))
    assert none[0].endswith("by no more than chance.") and none[1][0].rare == "\u221220% ± 200%"
    assert _drivers(table.assign(importance=2.0, spread=0.1, reference=0.0))[1][0].width == "2"
    assert _drivers(table.assign(importance=-0.001, spread=0.1, reference=1.0))[1][0].rare == "0% ± 10%"
    one = table.assign(
        importance=np.where(table["column"] == "b", 1.0, 0.0), spread=0.1, column=table["column"] * 40
    )
    assert _drivers(one)[0].endswith(f"if {'b' * 29}… is shuffled.")
    monkeypatch.setattr(drivers_module, "SHOWN_DRIVERS", 2)
    assert _drivers(one)[0].endswith("is shuffled. The table shows the 2 of 3 columns that matter most.")
    assert _reasons_text([("size", 3.21), ("kind", -1.0)]) == "size\u00a0+3.2, kind\u00a0\u22121"
