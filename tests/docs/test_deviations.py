"""docs/deviations.md agrees with the code: presets, options, and what the method does."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tailwise.labels.bins import MAX_BINS, MAX_LATTICE_BINS, MIN_BINS, LabelBins
from tailwise.metrics import ause
from tailwise.networks.vir import PRESETS, VIR
from tailwise.training.loop import TrainConfig

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "deviations.md").read_text(encoding="utf-8")
NAMES = ("VIR", "LabelBins.from_labels", "TrainConfig", "ause", "model")
CALLS = sorted(
    {
        " ".join(code.split())
        for code in re.findall(r"`([^`]+\))`", TEXT)
        if code.partition("(")[0] in NAMES and not code.endswith("()")
    }
)
LABELS = [1.0, 2.0, 2.0, 3.0, 3.0, 3.0, 4.0, 6.0]


def test_the_table_of_presets_is_complete_and_right():
    columns = re.search(r"^\| option \| (.*) \|$", TEXT, re.MULTILINE)
    assert columns is not None
    order = columns[1].split(" | ")
    rows = re.findall(r"^\| `([\w.]+)` \| `(.*?)` \| `(.*?)` \| `(.*?)` \|$", TEXT, re.MULTILINE)
    stated = {name: dict(zip(order, map(ast.literal_eval, values), strict=True)) for name, *values in rows}
    have = {preset: method.as_options() for preset, method in PRESETS.items()}
    assert set(order) == set(have)
    every = {
        name: {preset: have[preset].get(name) for preset in order} for row in have.values() for name in row
    }
    assert stated == {name: of for name, of in every.items() if len({repr(v) for v in of.values()}) > 1}


def test_the_code_of_each_element_exists():
    table = re.search(r"^\| element \| code .*?(?=\n\n)", TEXT, re.MULTILINE | re.DOTALL)
    assert table is not None
    rooms = [ROOT / "src", ROOT / "research" / "src"]
    files = [f for room in rooms for f in room.rglob("*") if f.suffix in (".py", ".toml")]
    code = " ".join(f"{f.as_posix()} {f.read_text(encoding='utf-8')}" for f in files)
    for row in table[0].splitlines()[2:]:
        _, element, cell, _, _ = row.split("|")
        words = re.findall(r"[\w-]{2,}", " ".join(re.findall(r"`([^`]+)`", cell)))
        missing = [word for word in words if not re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", code)]
        assert not missing, element


def build(_: object, **options: Any) -> VIR:
    return VIR(nn.Linear(3, 4), 4, LabelBins.from_labels(LABELS), **options)


@pytest.mark.parametrize("code", CALLS)
def test_every_option_named_is_one(code: str):
    y, x = torch.tensor(LABELS), torch.zeros(len(LABELS), 3)
    model = build(...).eval()
    names = {
        "VIR": build,
        "LabelBins": LabelBins,
        "TrainConfig": TrainConfig,
        "ause": ause,
        "model": model,
        "prediction": model(x),
        "x": x,
        "y": y,
    }
    built = eval(code, names)
    if isinstance(built, VIR):
        built.loss(x, y)[0].backward()
        assert torch.isfinite(built.eval()(x).mean).all()


def test_limits_on_the_number_of_bins():
    assert f"at most {MAX_LATTICE_BINS} bins" in TEXT
    assert f"least {MIN_BINS} and at most {MAX_BINS}" in " ".join(TEXT.split())
    for step in (1, 10, 0.5):
        assert len(LabelBins.from_labels([step * k for k in (0, 1, 2, 5, 7)])) == 8
    assert len(LabelBins.from_labels([0, 10, 20])) == 21  # too few values for a grid: whole numbers
    bins = LabelBins.from_labels([0.0, 4.0], edges=[0, 1, 2, 4])
    assert bins.index([0.98, 0.995, 1.0, 9.0]).tolist() == [0, 1, 1, 2]
