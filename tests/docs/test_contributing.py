"""The examples of parts of one's own are complete files: they are short, run, and pass the contract."""

import importlib.util
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest

from tailwise.methods import available_methods, registry
from tailwise.networks.heads import HEADS
from tailwise.networks.losses import LOSSES

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


def test_the_diff_is_that_of_the_files():
    (diff,) = re.findall(r"^```diff\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)
    for part in diff.split("+++ b/")[1:]:
        name, *added = part.splitlines()
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not [line for line in added if line[1:] not in text], name


def test_each_registers_one_method():
    assert set(available_methods()) - set(contract.NAMES) == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_it_keeps_the_contract(name: str):
    contract.test_contract(name)
    contract.test_no_step_waits_for_a_gpu(name, True)
    contract.test_promised_uncertainty(name)
    contract.test_documented(name)
