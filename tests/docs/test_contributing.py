"""The first example of CONTRIBUTING.md is a complete method: it is short, runs, and passes the contract."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
import torch

from tailwise.benchmark.data.suites import get_suite
from tailwise.core.distributions import Normal
from tailwise.core.labels import LabelBins
from tailwise.methods import available_methods, build_model, registry
from tailwise.networks.losses import OBJECTIVES, make_objective

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLE = re.findall(r"^```python\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)[0]


def load(path: Path) -> ModuleType:
    """Import a test file by its path: `tests` may be the name of an installed package."""
    spec = importlib.util.spec_from_file_location(f"contract_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


contract = load(ROOT / "tests" / "methods" / "test_registry.py")


@pytest.fixture(autouse=True)
def example() -> Iterator[None]:
    """Run the example, and remove its method from the registry afterwards."""
    with mock.patch.dict(OBJECTIVES), mock.patch.dict(registry._REGISTRY):
        exec(compile(EXAMPLE, "CONTRIBUTING.md", "exec"), {"__name__": "tailwise.methods.huber"})
        yield


def test_it_is_one_small_file():
    assert len(EXAMPLE.splitlines()) <= 40
    assert all(len(line) <= 110 for line in EXAMPLE.splitlines())


def test_it_registers_one_method():
    assert set(available_methods()) - set(contract.NAMES) == {"huber"}


def test_it_keeps_the_contract():
    contract.test_contract("huber")
    contract.test_promised_uncertainty("huber")
    contract.test_documented("huber")


@pytest.mark.parametrize("delta", [0.5, 1.0, 3.0])
def test_its_formula(delta: float):
    bins = LabelBins.from_labels([0, 1, 2])
    mean, y = torch.linspace(-4, 4, 33), torch.zeros(33)
    ours = make_objective("huber", bins, {"delta": delta})(Normal(mean, 1.0), y)
    theirs = torch.nn.functional.huber_loss(mean, y, reduction="none", delta=delta)
    torch.testing.assert_close(ours, theirs)


def test_its_option_is_reached_as_the_text_says():
    bins = LabelBins.from_labels([0, 1, 2])
    model = build_model("huber", torch.nn.Linear(2, 3), 3, bins, objective_options={"delta": 0.5})
    assert model.objective.delta == 0.5
    with pytest.raises(ValueError, match="did you mean 'delta'"):
        build_model("huber", torch.nn.Linear(2, 3), 3, bins, objective_options={"delt": 0.5})


def test_its_suite_of_a_table_is_read(tmp_path: Path):
    (text,) = re.findall(r"^```toml\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)
    path = tmp_path / "own.toml"
    path.write_text(text, encoding="utf-8")
    suite = get_suite(str(path))
    assert [source.name for source in suite.sources] == ["prices"]
    assert suite.options == {"huber": {"objective_options": {"delta": 0.5}}}
