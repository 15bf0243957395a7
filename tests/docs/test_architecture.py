"""The architecture page describes every room of the import contract."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "tailwise"


def test_every_room_has_a_line_in_the_import_contract_and_on_the_page() -> None:
    rooms = {path.stem for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"}
    rooms = {name for name in rooms if not name.startswith("_")}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    contract = next(contract for contract in settings["contracts"] if contract["type"] == "layers")
    layers = [name.strip(" ()") for layer in contract["layers"] for name in layer.split("|")]
    assert sorted(layers) == sorted(rooms)
    table = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Rooms")[2]
    first_cells = "".join(re.findall(r"^\|([^|]*)\|", table, re.MULTILINE))
    assert set(re.findall(r"`(\w+)(?:\.py)?`", first_cells)) == rooms
