"""Every room says what it is for, and has a line in the import contract and on the architecture page."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "tailwise"


def test_every_room_is_described_and_has_a_line_in_the_import_contract() -> None:
    rooms = {init.parent.name for init in PACKAGE.glob("*/__init__.py")}
    rooms |= {"estimator", "options", "lookup", "writing"}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (contract,) = settings["contracts"]
    layers = [name.strip(" ()") for layer in contract["layers"] for name in layer.split("|")]
    assert sorted(layers) == sorted(rooms)
    table = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Rooms")[2]
    first_cells = "".join(re.findall(r"^\|([^|]*)\|", table, re.MULTILINE))
    described = set(re.findall(r"`(\w+)(?:\.py)?`", first_cells))
    assert described == rooms


def test_a_room_says_what_it_is_for() -> None:
    silent = [
        str(init.parent.relative_to(PACKAGE))
        for init in PACKAGE.rglob("__init__.py")
        if not init.read_text(encoding="utf-8").startswith('"""')
    ]
    assert not silent
