"""Pictures through the commands: a folder and a table of paths, and an archive."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from typer.testing import Result

from tests.command_line import invoke
from tests.picture_samples import pictures, write_pictures, zipped

AGES = np.repeat([20.0, 30.0, 40.0, 50.0, 60.0], [20, 12, 9, 6, 3])


def run(*arguments: object) -> Result:
    """Run a command."""
    found: Result = invoke(*arguments)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with pictures, tables of them, and the same in an archive."""
    top = tmp_path_factory.mktemp("faces")
    names = [f"in/{i}.png" for i in range(len(AGES))]
    write_pictures(top / "pictures", names, pictures(AGES, 16))
    zipped(top / "pictures", top / "pictures.zip")
    faces, tested = pd.DataFrame({"age": AGES, "path": names}), np.arange(len(AGES)) % 5 == 4
    for name, table in {"faces": faces, "train": faces[~tested], "test": faces[tested]}.items():
        table.to_csv(top / f"{name}.csv", index=False)
    return top


@pytest.fixture(scope="module")
def fitted(folder: Path, torchvision: ModuleType) -> tuple[Path, Result]:
    """Return a model with test pictures of its own, and what the command printed."""
    model = folder / "model.tailwise"
    done = run(
        "fit", folder / "train.csv", "--images", folder / "pictures", "--target", "age", "--out", model,
        "--test", folder / "test.csv", "--image-size", 16, "--epochs", 1, "--report", folder / "page.html",
        "--json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return model, done


def test_fit_shows_the_pictures(folder: Path, fitted: tuple[Path, Result]) -> None:
    page = (folder / "page.html").read_text()
    assert page.count('src="data:image/jpeg;base64,') == 10  # five errors and five intervals
    assert "from pictures" in page
    assert json.loads(fitted[1].stdout)["report"] == str(folder / "page.html")
    assert "note: a larger --test-share, or a table given with --test" in fitted[1].stderr


def test_predict_and_evaluate_find_the_pictures_in_an_archive_too(
    folder: Path, fitted: tuple[Path, Result]
) -> None:
    tables = []
    for root in ("pictures", "pictures.zip"):
        out = folder / f"{root}.csv"
        done = run("predict", fitted[0], folder / "faces.csv", "--images", folder / root, "--out", out)
        assert done.exit_code == 0, done.output
        tables.append(pd.read_csv(out))
    assert len(tables[0]) == len(AGES)
    pd.testing.assert_frame_equal(tables[0], tables[1])
    given = (fitted[0], folder / "faces.csv", "--images", folder / "pictures", "--json")
    for command in (("evaluate", *given), ("recalibrate", *given, "--out", folder / "again.tailwise")):
        done = run(*command)
        assert done.exit_code == 0, done.output


def test_broken_pictures_stop_a_command_or_are_left_out(folder: Path, fitted: tuple[Path, Result]) -> None:
    table = pd.read_csv(folder / "faces.csv").assign(path=lambda t: t["path"].replace("in/3.png", "in/x.png"))
    table.to_csv(folder / "some.csv", index=False)
    given = ("predict", fitted[0], folder / "some.csv", "--images", folder / "pictures", "--force", "--out")
    done = run(*given, folder / "p.csv")
    assert done.exit_code == 1 and "in/x.png does not exist" in done.output
    done = run(*given, folder / "p.csv", "--skip-broken")
    assert done.exit_code == 0 and "left out 1 pictures: " in done.output
    assert len(pd.read_csv(folder / "p.csv")) == len(AGES) - 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--images", "nowhere"), "nowhere does not exist: name the folder or the zip archive"),
        (("--paths", "file"), "no column 'file'"),
    ],
)
def test_what_does_not_fit_pictures_is_explained(
    folder: Path, arguments: tuple[str, str], message: str, torchvision: ModuleType
) -> None:
    given = {"--images": folder / "pictures", "--out": folder / "other.tailwise", "--image-size": 16}
    given |= dict([arguments])
    flags = [part for pair in given.items() for part in pair]
    done = run("fit", folder / "faces.csv", "--target", "age", "--quiet", *flags)
    assert done.exit_code == 1 and message in done.output, done.output


def test_models_of_pictures_need_them_and_models_of_tables_refuse_them(
    folder: Path, fitted: tuple[Path, Result], tmp_path: Path
) -> None:
    done = run("predict", fitted[0], folder / "faces.csv", "--out", tmp_path / "p.csv")
    assert done.exit_code == 1 and "name their folder or zip archive with --images" in done.output
    table = tmp_path / "table.csv"
    pd.DataFrame({"x": np.arange(30.0), "age": np.arange(30.0) ** 2}).to_csv(table, index=False)
    model = tmp_path / "table.tailwise"
    done = run("fit", table, "--target", "age", "--out", model, "--base", "none", "--epochs", 1, "--quiet")
    assert done.exit_code == 0, done.output
    done = run("predict", model, table, "--images", folder, "--out", tmp_path / "p.csv")
    assert done.exit_code == 1 and "leave out --images" in done.output


@pytest.mark.slow
def test_compare_trains_networks_on_pictures(folder: Path, torchvision: ModuleType) -> None:
    given = ("compare", folder / "faces.csv", "--target", "age", "--images", folder / "pictures")
    done = run(*given, "--image-size", 16, "--epochs", 1, "--seeds", 1, "--methods", "vanilla", "--json")
    assert done.exit_code == 0, done.output
    (record,) = json.loads(done.stdout)["runs"]
    assert record["recipe"]["backbone"] == "resnet18" and record["recipe"]["image_size"] == 16
    done = run(*given, "--methods", "catboost")
    assert done.exit_code == 1 and "boosted trees take tables" in done.output
