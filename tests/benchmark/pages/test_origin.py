"""Sentences about the origin of results."""

from typing import Any

import pytest

from tailwise.benchmark.pages.origin import (
    changed_methods,
    describe_changed,
    describe_code,
    describe_machines,
    describe_origin,
)
from tailwise.benchmark.pages.prose import describe_runs
from tailwise.benchmark.pages.statistics import Results
from tailwise.benchmark.run.trace import EQUAL_SINCE, trace_of

Records = list[dict[str, Any]]
EQUAL = f" Golden outputs of methods are equal since {EQUAL_SINCE}."


def test_lines_without_a_record_of_their_code_are_counted(records: Records) -> None:
    assert describe_code(records) == "Lines without a record of their code: 30 of 30."
    for record in records[:10]:
        record["trace"] = {"code": "c1", "commit": "abc1234"}
    assert describe_code(records) == (
        f"Digest of the code (commit): c1 (abc1234; 10 lines).{EQUAL} Lines without a record of their code: "
        "20 of 30."
    )
    assert describe_code(records[:10]) == f"Digest of the code (commit): c1 (abc1234; 10 lines).{EQUAL}"
    records[0]["trace"] = {"code": "c1", "commit": "def5678+dirty"}
    records[1]["trace"] = {"code": "c2"}
    assert describe_code(records[:10]) == (
        "**The lines come from 2 states of the code.** Digest of the code (commit): c1 (def5678+dirty, "
        f"abc1234; 9 lines); c2 (no commit; 1 line).{EQUAL}"
    )


def test_one_commit_is_one_state_of_the_code_for_methods_and_estimators(records: Records) -> None:
    for record in records[:2]:
        record["trace"] = {"code": "c1", "commit": "abc1234"}
    records[2]["trace"] = {"code": "e1", "commit": "abc1234", "packages": {}}
    assert describe_code(records[:3]) == (
        "Digest of the code (commit): of methods c1 (abc1234; 2 lines); of estimators e1 (abc1234; 1 line)."
        f"{EQUAL}"
    )


def test_comparisons_between_machines_are_named(records: Records) -> None:
    assert describe_machines(records, "vir") == "Run on: test."
    for record in records:
        if record["data"] == "y":
            record["machine"] = "second"
    both = "**Lines of 2 machines are compared.** Run on: second (15 lines); test (15 lines)."
    assert describe_machines(records) == both
    assert describe_machines(records, "vir") == f"{both} No comparison with the reference mixes them."
    others = [record for record in records if record["method"] == "other"]
    others[0]["machine"] = "second"
    others[1]["trace"] = {"code": "c", "device": "H200"}
    assert describe_machines(records, "vir").endswith(
        "second (16 lines); test (13 lines); test, H200 (1 line). Not on the machine of VIR's run with the "
        "same data and seed: OTHER 2."
    )


def test_methods_that_have_changed_are_marked_everywhere(records: Records) -> None:
    for record in records:
        record["trace"] = trace_of(record["method"] if record["method"] != "other" else None)
    assert describe_changed(records) == "" and changed_methods(records) == {}
    row = next(r for r in records if r["method"] == "vir")["trace"]["row"]
    row["kl.weight"] = 9.0
    now = trace_of("vir")["row"]["kl.weight"]
    assert changed_methods(records) == {"vir": f"kl.weight 9.0, now {now}"}
    said = f"**Changed since their runs †; run them again:** VIR (kl.weight 9.0, now {now})."
    assert describe_origin(records, "vir")[0] == said
    results = Results(records)
    assert results.titles == {"vanilla": "VANILLA", "vir": "VIR †", "other": "OTHER"}
    assert f"- {said}\n" in describe_runs(results, "vir")


@pytest.mark.parametrize(("count", "said"), [(1, "1 line"), (3, "3 lines")])
def test_sentences_that_say_nothing_are_left_out(records: Records, count: int, said: str) -> None:
    for record in records:
        record["trace"] = {"code": "c", "commit": "abc1234"}
    assert describe_origin(records[:count]) == [
        f"Digest of the code (commit): c (abc1234; {said}).{EQUAL}",
        "Run on: test.",
    ]
