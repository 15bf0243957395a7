"""A manifest is refused whole if one field of it is missing, unknown, of a wrong type or beyond its limit."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tailwise import TailRegressor
from tailwise.files.archive import MANIFEST, MAX_HEADER, WEIGHTS
from tailwise.files.manifest import check_manifest
from tests.estimator.saved_files import leaves, members_of, written

NAN = {"$float": "nan"}
Change = Callable[[Any], Any]


def put(*place: Any, value: Any) -> Change:
    """A change of one value of a manifest."""

    def change(manifest: Any) -> None:
        for key in place[:-1]:
            manifest = manifest[key]
        manifest[place[-1]] = value

    return change


def forged(saved: Path, path: Path, change: Change) -> Path:
    members = members_of(saved)
    manifest = json.loads(members[MANIFEST])
    change(manifest)
    return written(path, {**members, MANIFEST: json.dumps(manifest).encode()})


TABLE = ("targets", 0, "conformal", "tables")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put(*TABLE, "all", "effective", value=NAN), r"all.effective is nan, not a number above 0"),
        (put(*TABLE, "all", "effective", value=-3), r"all.effective is -3, not a number above 0"),
        (put(*TABLE, "all", "n", value="45"), r"tables.all.n is '45', not a whole number from 1"),
        (put(*TABLE, "all", "at_most", value=[0.5, 0.1]), "shares of the scores of 'all' are not in order"),
        (lambda m: m["targets"][0]["conformal"]["tables"].popitem(), "the scores of the regions are not"),
        (put("targets", 0, "conformal", value=None), r"has no conformal intervals, but .*'region'"),
        (lambda m: m["targets"][0].pop("conformal"), r"targets\[0\] lacks 'conformal'"),
        (put("targets", 0, "scaling", "kind", value="os.system"), "scaling.kind is 'os.system', not one of"),
        (put("targets", 0, "scaling", value=[1]), r"scaling is \[1\], not a mapping"),
        (put("targets", 0, "emphasis", value=2.0), "emphasis is 2.0, not a number from 0 to 1"),
        (put("targets", 0, "bins", "edges", value=[0.0] * 20_000), "edges is .*, not a list of 2 to 10001"),
        (put("targets", value=[]), r"its targets is \[\], not a list of 1 to 1000 values"),
        (put("held_out", value=1), "its held_out is 1, not true or false"),
        (put("parts", "weights.radius", value=10**8), r"weights.radius must be a whole number in"),
        (put("parts", "members", value=100_000), r"members must be a whole number in \[1, 1000\]"),
        (put("parts", "members", value=999), "it declares 999 members, more than it holds"),
        (put("parts", "latent.dim", value=10**9), r"latent.dim must be a whole number in \[1, 1048576\]"),
        (put("parts", "inference", value="selfs"), "unknown inference 'selfs'; did you mean 'self'"),
        (put("parts", "kl.weight", value="0"), "kl.weight must be a number, got '0'"),
        (put("backbone", "options", "hidden", value=[30_000, 30_000]), "declared as .*30000.* but stored as"),
        (put("backbone", "options", "hidden", value=[8] * 200_000), "hidden is .*, not a list of 0 to 100"),
        (put("backbone", "options", "hidden", value=[128] * 100), "is declared as .* but stored as"),
        (put("backbone", "options", "dropuot", value=0.1), "unknown field 'dropuot'; did you mean 'dropout'"),
        (put("backbone", "name", value="os"), "backbone.name is 'os', not one of"),
        (put("params", "many", value=-1), "The 'many' parameter"),
        (put("target_names", value=["a", "b"]), "2 names for 1 targets"),
        (put("several_targets", value=True), "cannot be loaded"),
        (put("networks", value=2), "its histories and networks differ in number"),
        (put("feature_names_in", value=["a"]), "1 names for 4 features"),
        (put("extra", value=1), "the manifest has an unknown field 'extra'"),
    ],
)  # fmt: skip
def test_wrong_fields_are_named_before_memory_is_taken(
    change: Change, message: str, saved: Path, tmp_path: Path
) -> None:
    path = forged(saved, tmp_path / "m", change)
    tracemalloc.start()
    with pytest.raises(ValueError, match=message) as caught:
        TailRegressor.load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert tracemalloc.get_traced_memory()[1] < 20e6 + 50 * path.stat().st_size
    tracemalloc.stop()


def test_two_targets_where_the_model_has_one(saved: Path, tmp_path: Path) -> None:
    path = forged(saved, tmp_path / "m", lambda m: m["targets"].append(m["targets"][0]))
    with pytest.raises(ValueError, match="2 targets do not fit a model of one"):
        TailRegressor.load(path)


def test_every_field_has_a_type(saved: Path) -> None:
    """No field of a manifest may become a text or a list of lists, except where any text is allowed."""
    content = members_of(saved)[MANIFEST]
    free = {"format", "tailwise", "members", "params", "rule", "form", "monitor", "kernel"}
    for place in leaves(json.loads(content)):
        if not place or free & set(place) or "$tuple" in place or place[:1] == ("parts",):
            continue
        manifest = json.loads(content)
        put(*place, value=[["x"]])(manifest)
        with pytest.raises(ValueError):
            check_manifest(manifest)


def test_headers_that_are_too_large(saved: Path, tmp_path: Path) -> None:
    members = members_of(saved)
    for header in (
        (MAX_HEADER + 1).to_bytes(8, "little") + bytes(MAX_HEADER + 1),
        (1 << 60).to_bytes(8, "little"),
        (4_000_000).to_bytes(8, "little") + b"{" + b"," * 3_999_998 + b"}",
    ):
        path = written(tmp_path / "m", {**members, WEIGHTS: header}, sums=True)
        with pytest.raises(ValueError, match=r"has a header of \d+ bytes|names too many tensors"):
            TailRegressor.load(path)


def test_a_model_that_could_not_be_loaded_is_not_written(
    simple: TailRegressor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simple, "model_", replace(simple.model_, names=("a", "b")))
    with pytest.raises(ValueError, match="the model cannot be saved: 2 names for 1 targets"):
        simple.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())
