"""The origin of results lines: commit, digest of the code, parts of the method, device."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tailwise.benchmark import Recipe, from_registry, read_results, run_suite
from tailwise.benchmark.run import runs, trace
from tailwise.benchmark.run.estimators import all_estimators
from tailwise.benchmark.run.tail_contender import tail_contender
from tailwise.benchmark.run.trace import (
    ESTIMATOR,
    changed_parts,
    commit,
    device_name,
    digest_of_code,
    row_of,
    trace_of,
    unchanged,
)
from tailwise.methods import get_method, registry


def give_parts(monkeypatch: pytest.MonkeyPatch, name: str, **options: Any) -> None:
    """Change the parts of a registered method, as an edit of the table does."""
    method = get_method(name)
    monkeypatch.setitem(registry._REGISTRY, name, replace(method, parts=method.parts.with_options(**options)))


def line(name: str | None = "vir", **options: Any) -> dict[str, Any]:
    """A results line as it is read back."""
    found: dict[str, Any] = json.loads(json.dumps({"method": name, "trace": trace_of(name, options)}))
    return found


# -- code ----------------------------------------------------------------------------------------


def test_the_digest_of_code_ignores_comments_docstrings_and_layout(tmp_path: Path) -> None:
    file = tmp_path / "room" / "a.py"
    file.parent.mkdir()
    file.write_text('"""Doc."""\nx = 1\n"""About x."""\ndef f(a, b=2):\n    """Doc."""\n    return a + b\n')
    before = digest_of_code("room", root=tmp_path)
    file.write_text("# Why.\nx = 1\n\n\ndef f(\n    a, b=2\n):\n    return (a + b)  # sum\n")
    assert digest_of_code("room", root=tmp_path) == before == digest_of_code("room", root=tmp_path)
    file.write_text("x = 1\ndef f(a, b=2):\n    return a - b\n")
    assert digest_of_code("room", root=tmp_path) != before
    file.write_text("x = 1\ndef f(a, b=2):\n    return a + b\n")
    (tmp_path / "room" / "b.py").write_text("")
    assert digest_of_code("room", root=tmp_path) != before
    assert digest_of_code("room/a.py", root=tmp_path) == before


def test_runs_of_methods_do_not_depend_on_the_code_of_the_estimator() -> None:
    assert trace_of("vir")["code"] == trace_of("vanilla")["code"] != trace_of(None)["code"]
    assert trace_of(ESTIMATOR)["code"] == trace_of(None)["code"]


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    done = subprocess.run(
        ["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_the_commit_is_that_of_the_source_and_marked_if_the_source_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(trace.COMMIT, raising=False)
    source = tmp_path / "src"
    source.mkdir()
    assert commit(source) is None  # no repository
    git(tmp_path, "init", "-q")
    (source / "_version.py").write_text("")
    (tmp_path / "results.jsonl").write_text("")
    assert commit(source) is None  # as a package that is installed below another project's folder
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "a")
    whole = git(tmp_path, "rev-parse", "HEAD")
    assert commit(source) == whole[:12]
    (tmp_path / "results.jsonl").write_text("{}\n")  # a run appends to it
    assert commit(source) == whole[:12]
    (source / "new.py").write_text("")
    assert commit(source) == f"{whole[:12]}+dirty"
    monkeypatch.setenv("PATH", "")
    assert commit(source) is None  # no git


def test_the_commit_of_a_copy_without_repository_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(trace.COMMIT, "212c185+dirty")
    assert commit(tmp_path) == "212c185+dirty"
    monkeypatch.setenv(trace.COMMIT, "main")
    with pytest.raises(ValueError, match=r"TAILWISE_COMMIT must be a commit such as 212c185 .*, got 'main'"):
        commit(tmp_path)
    monkeypatch.delenv(trace.COMMIT)
    monkeypatch.setattr(trace, "commit", lambda: None)
    trace._state.cache_clear()
    assert "commit" not in trace_of("vanilla") and len(trace_of("vanilla")["code"]) == 12
    trace._state.cache_clear()


def test_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert {device_name(name) for name in ("cpu", "auto")} == {"cpu"}
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert (device_name("cpu"), device_name("auto")) == ("cpu", "mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "H200")
    assert (device_name("cpu"), device_name("auto"), device_name("cuda")) == ("cpu", "H200", "H200")


# -- parts ---------------------------------------------------------------------------------------


def test_a_row_has_every_part_that_is_on() -> None:
    row = row_of("vir", {"smoothing.bandwidth": 3.0, "bins": 20, "lr": 0.1})
    own = get_method("vir").parts.as_options()
    assert (row["kl.weight"], row["smoothing.bandwidth"]) == (own["kl.weight"], 3.0)
    assert (row["smoothing"], row["head.prior"]) == ("statistics", list(own["head.prior"]))
    assert "bins" not in row and "lr" not in row and "schedule" not in row
    assert "smoothing" not in row_of("vanilla") and row_of("vanilla")["losses"] == ["squared"]


def test_rows_of_the_estimator_follow_its_parameters_and_its_method(monkeypatch: pytest.MonkeyPatch) -> None:
    row = row_of(ESTIMATOR)
    own = get_method(row["method"]).parts.as_options()
    assert row["method.evidence.weight"] == own["evidence.weight"]
    assert "random_state" not in row and "device" not in row
    old, other = line(ESTIMATOR), line(ESTIMATOR, lr=0.5)
    assert changed_parts(old) == changed_parts(other) == {}
    give_parts(monkeypatch, row["method"], **{"evidence.weight": 7.0})
    assert changed_parts(old) == {"method.evidence.weight": (own["evidence.weight"], 7.0)}


def test_estimators_know_the_parameters_that_they_set() -> None:
    found = {estimator.name: estimator.parameters for estimator in all_estimators()}
    assert found["tail"] == {} and found["tail-none"] == {"base": None}
    assert {found[name] for name in ("catboost", "catboost-weighted", "ngboost+conformal")} == {None}
    assert tail_contender().base == ESTIMATOR


def test_a_changed_part_is_named_with_both_values(monkeypatch: pytest.MonkeyPatch) -> None:
    kl = get_method("vir").parts.as_options()["kl.weight"]
    old, variant, other = line(), line(**{"kl.weight": 0.5}, smoothing=None), line("vanilla")
    give_parts(monkeypatch, "vir", **{"kl.weight": 3.0})
    assert changed_parts(old) == {"kl.weight": (kl, 3.0)}
    assert changed_parts(variant) == changed_parts(other) == {}  # it sets this part itself
    assert unchanged([old, variant, other]) == [variant, other]
    give_parts(monkeypatch, "vir", kl=None, smoothing=None)
    found = changed_parts(old)
    assert found["kl.weight"] == (kl, None) and found["smoothing"] == ("statistics", None)


def test_a_part_that_is_new_counts_only_if_the_method_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    old = line("lds-vir-predictor")
    for part in ("head.sharpness", "weights.form"):
        del old["trace"]["row"][part]  # as if the line were older than the option
    assert changed_parts(old) == {}
    give_parts(monkeypatch, "lds-vir-predictor", **{"head.sharpness": 3.0})
    assert changed_parts(old) == {"head.sharpness": (None, 3.0)}
    give_parts(monkeypatch, "lds-vir-predictor", smoothing="statistics")  # with all options at defaults
    assert changed_parts(old)["smoothing"] == (None, "statistics")


def test_a_parameter_of_the_estimator_that_is_new_counts_if_it_is_set() -> None:
    old, other = line(ESTIMATOR), line(ESTIMATOR, patience=3)
    for record in (old, other):
        del record["trace"]["row"]["patience"], record["trace"]["row"]["method.head.sharpness"]
    assert changed_parts(old) == {} and changed_parts(other) == {"patience": (None, 3)}
    old["trace"]["row"]["conformal"] = "none of today's"
    assert list(changed_parts(old)) == ["conformal"]


def test_lines_that_do_not_tell_have_no_known_changes() -> None:
    removed = line("vanilla")
    removed["trace"]["method"] = "a plugin's"
    assert [changed_parts(r) for r in ({"method": "vir"}, line(None), removed)] == [{}, {}, {}]
    broken = line()
    broken["trace"]["options"] = {"no_such_part": 1}
    assert "unknown option 'no_such_part'" in changed_parts(broken)["options"][1]


# -- runs ----------------------------------------------------------------------------------------


def test_runs_of_a_changed_method_are_repeated(
    prepared: Path, tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, recipe = tmp_path / "results.jsonl", replace(recipe, trials=1)
    contenders = [from_registry(name, tuned=False) for name in ("lds", "vanilla")]

    def run() -> int:
        options: Any = {"out": out, "seeds": (0,), "data": ["one"], "recipe": recipe, "progress": False}
        return run_suite(prepared, contenders, **options).done

    assert (run(), run()) == (2, 0)
    (lds, vanilla) = read_results(out)
    assert lds["trace"]["row"] == row_of("lds") and lds["trace"]["device"] == "cpu"
    assert lds["trace"]["parts"] != vanilla["trace"]["parts"]
    give_parts(monkeypatch, "lds", weights={"power": 0.9})
    before = lds["trace"]["row"]["weights.power"]
    assert runs._outdated(read_results(out)) == [
        f"lds: 1 runs are repeated because it has changed (weights.power {before}, now 0.9)"
    ]
    assert (run(), run()) == (1, 0)
    assert {r["method"]: r["trace"]["row"].get("weights.power") for r in read_results(out)}["lds"] == 0.9
    assert runs._outdated(read_results(out)) == []
