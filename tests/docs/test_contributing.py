"""The examples of parts of one's own are complete files: they are short, run, and pass the contract."""

import importlib.util
import math
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest
import torch

from tailwise.distributions.members import Normal
from tailwise.methods import available_methods, registry
from tailwise.networks.heads import HEADS
from tailwise.networks.losses import LOSSES
from tests.networks.small_models import FEW, batch, loss_of, make_part

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
OWN = (ROOT / "docs" / "own-models.md").read_text(encoding="utf-8")
EXAMPLES = {
    re.findall(r"\nregister\(\s*\"(.*?)\"", text)[0]: text
    for text in re.findall(r"^```python\n(.*?)^```", TEXT + OWN, flags=re.MULTILINE | re.DOTALL)
    if "\nregister(" in text
}
"""The complete files: a loss, a head, a penalty with a temperature and learnt centroids."""


def load(path: Path) -> ModuleType:
    """Import a test file by its path: `tests` may be the name of an installed package."""
    spec = importlib.util.spec_from_file_location(f"contract_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


contract = load(ROOT / "tests" / "methods" / "test_registry.py")


@pytest.fixture(autouse=True)
def examples() -> Iterator[None]:
    """Run the examples, and remove their parts and methods from the registries afterwards."""
    with ExitStack() as stack:
        for known in (LOSSES, HEADS, registry._REGISTRY):
            stack.enter_context(mock.patch.dict(known))
        for name, text in EXAMPLES.items():
            exec(compile(text, name, "exec"), {"__name__": f"tailwise.methods.{name}"})
        yield


def test_the_diff_and_the_lines_are_those_of_the_files():
    (diff,) = re.findall(r"^```diff\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)
    for part in diff.split("+++ b/")[1:]:
        name, *added = part.splitlines()
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not [line for line in added if line[1:] not in text], name
    stated = re.findall(r" (\d+)[,;.]", TEXT[TEXT.index("file: Rank-N-Contrast") :].partition("\n\n")[0])
    files = ("rank_n_contrast", "dist_loss", "conr", "srl", "uvote", "since_vir")
    paths = [ROOT / "src" / "tailwise" / "methods" / f"{name}.py" for name in files]
    assert [int(n) for n in stated] == [len(p.read_text("utf-8").splitlines()) for p in paths]


def test_each_registers_one_method():
    assert set(available_methods()) - set(contract.NAMES) == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_keeps_the_contract(name: str):
    contract.test_contract(name)
    contract.test_no_step_waits_for_a_gpu(name, True)
    contract.test_promised_uncertainty(name)
    contract.test_documented(name)


@pytest.mark.parametrize("delta", [0.5, 1.0, 3.0])
def test_the_loss_by_its_formula(delta: float):
    mean, y = torch.linspace(-4, 4, 33), torch.zeros(33)
    ours = loss_of("huber", delta=delta)(batch(Normal(mean, 1.0), y))
    theirs = torch.nn.functional.huber_loss(mean, y, reduction="none", delta=delta)
    torch.testing.assert_close(ours, theirs)


def test_the_head_by_its_formula():
    head = make_part("head", "floored", 1, FEW, floor=0.5)
    torch.nn.init.zeros_(head.linear.weight)
    torch.nn.init.constant_(head.linear.bias, -1e6)
    torch.testing.assert_close(head(torch.zeros(1, 1)).std, torch.tensor([0.5]))


def test_the_penalty_by_its_formula():
    penalty = make_part("losses", "centroids", 2, FEW, temperature=0.5)
    with torch.no_grad():
        penalty.centroids.copy_(torch.tensor([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0]]))
    z = torch.tensor([[1.0, 0.0], [0.0, -4.0]])
    rows = batch(Normal(z[:, 0], 1.0), z[:, 0], z_mean=z, index=torch.tensor([0, 1]))
    shares = [math.exp(2) / (math.exp(2) + 1 + math.exp(-2)), math.exp(-2) / (1 + math.exp(-2) + 1)]
    torch.testing.assert_close(penalty(rows), -torch.tensor(shares).log())
