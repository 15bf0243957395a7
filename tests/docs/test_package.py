"""The package builds, runs in an empty environment, and has the rooms of the architecture page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tailwise import __version__

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13")


def run(*line: object, **options: object) -> str:
    done = subprocess.run([str(word) for word in line], capture_output=True, text=True, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr[-3000:]
    return str(done.stdout)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel, which is built from the sdist."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(built: Path) -> None:
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    held = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "src"
    there = {p.relative_to(package).as_posix() for p in package.rglob("*") if p.is_file()}
    there = {name for name in there if "__pycache__" not in name}
    assert there <= held
    for kind in (".html", ".csv.gz", "py.typed"):
        assert any(name.endswith(kind) for name in there), kind
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "constraints.txt", "docs/serving.md", "tests/docs/test_package.py"} <= names


def environment(folder: Path, python: str, wheel: Path) -> Path:
    """Make an environment with nothing but the wheel, and return its programs."""
    run(python, "-m", "venv", "--without-pip", folder)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    run(sys.executable, "-m", "pip", "--python", programs / "python", "install", "--quiet", "--no-deps",
        "--no-index", "--disable-pip-version-check", wheel)  # fmt: skip
    return programs


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS)
def test_the_wheel_runs_in_an_empty_environment(built: Path, tmp_path: Path, version: str) -> None:
    """The dependencies are those of this environment; other Pythons can only use those in plain Python."""
    own = version == f"{sys.version_info.major}.{sys.version_info.minor}"
    python = sys.executable if own else shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "--version"], capture_output=True).returncode != 0:
        pytest.skip(f"python{version} is not installed")
    (wheel,) = built.glob("*.whl")
    programs = environment(tmp_path / "empty", python, wheel)
    settings = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    settings["PYTHONPATH"] = sysconfig.get_path("purelib")
    assert run(programs / "tailwise", "--version", env=settings, cwd=tmp_path) == f"tailwise {__version__}\n"
    if own:
        code = "import tailwise.data as data; print(data.__file__, len(data.load_abalone()))"
        where, rows = run(programs / "python", "-c", code, env=settings, cwd=tmp_path).split()
        assert Path(where).is_relative_to(tmp_path) and rows == "4177"
        found = json.loads(run(programs / "tailwise", "doctor", "--json", env=settings, cwd=tmp_path))
        assert found["tailwise"] == __version__


def test_the_workflow_and_the_image_name_things_that_exist() -> None:
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert re.search(r'python: \["3.11", "3.12", "3.13"\]', workflow)
    image = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (?!--)(.*) \S+$", image, re.M)
    for name in " ".join(copied).split():
        assert (ROOT / name).exists(), name
        assert f"!{name}" in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert re.search(r"^USER tailwise$", image, re.M) and '"serve", "/model.tailwise"' in image


def test_every_room_has_a_line_in_the_import_contract_and_on_the_page() -> None:
    rooms = {
        path.stem for path in (ROOT / "src" / "tailwise").iterdir() if path.is_dir() or path.suffix == ".py"
    }
    rooms = {name for name in rooms if not name.startswith("_")}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    contract = next(contract for contract in settings["contracts"] if contract["type"] == "layers")
    layers = [name.strip(" ()") for layer in contract["layers"] for name in layer.split("|")]
    assert sorted(layers) == sorted(rooms)
    table = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Rooms")[2]
    first_cells = "".join(re.findall(r"^\|([^|]*)\|", table, re.MULTILINE))
    assert set(re.findall(r"`(\w+)(?:\.py)?`", first_cells)) == rooms
