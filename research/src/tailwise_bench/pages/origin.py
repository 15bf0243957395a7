"""Sentences about the origin of results: code, machines, and methods that have changed since their runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tailwise_bench.run.results import Record
from tailwise_bench.run.trace import EQUAL_SINCE, changed_parts, describe_changes

MARK = " †"
"""Behind the title of a method that has changed since some of its runs."""


def changed_methods(records: Iterable[Record]) -> dict[str, str]:
    """Return the methods that have changed since one of their runs, each with what changed."""
    found: dict[str, str] = {}
    for record in records:
        if changes := changed_parts(record):
            found.setdefault(record["method"], describe_changes(changes))
    return found


def describe_code(records: Sequence[Record]) -> str:
    """Say which states of the code the lines come from, and how many lines do not tell.

    Lines of registered methods and of estimators have digests of different folders, so each kind is counted
    for itself.
    """
    kinds: dict[str, dict[str, list[str]]] = {"methods": {}, "estimators": {}}
    for record in records:
        if trace := record.get("trace"):
            states = kinds["estimators" if "packages" in trace else "methods"]
            states.setdefault(trace["code"], []).append(trace.get("commit", "no commit"))
    found = {kind: states for kind, states in kinds.items() if states}
    words = [
        (f"of {kind} " if len(found) > 1 else "")
        + "; ".join(
            f"{code} ({', '.join(dict.fromkeys(of))}; {_lines(len(of))})" for code, of in states.items()
        )
        for kind, states in found.items()
    ]
    most = max(map(len, found.values()), default=0)
    text = f"**The lines come from {most} states of the code.** " if most > 1 else ""
    if words:
        text += f"Digest of the code (commit): {'; '.join(words)}."
        if "methods" in found:
            text += f" Golden outputs of methods are equal since {EQUAL_SINCE}."
    known = sum(len(of) for states in found.values() for of in states.values())
    if known < len(records):
        text += " " if text else ""
        text += f"Lines without a record of their code: {len(records) - known:,} of {len(records):,}."
    return text


def _lines(count: int) -> str:
    return f"{count:,} {'line' if count == 1 else 'lines'}"


def _place(record: Record) -> str:
    device = record.get("trace", {}).get("device", "cpu")
    return f"{record.get('machine', 'unknown')}{'' if device == 'cpu' else f', {device}'}"


def describe_machines(records: Sequence[Record], reference: str | None = None) -> str:
    """Say where the lines were made, and which contenders ran elsewhere than what they are compared with.

    With a reference, a contender is compared with it on the same data set and seed; otherwise with all.
    """
    counts: dict[str, int] = {}
    for record in records:
        counts[_place(record)] = counts.get(_place(record), 0) + 1
    if len(counts) == 1:
        return f"Run on: {next(iter(counts))}."
    listed = "; ".join(f"{place} ({_lines(count)})" for place, count in sorted(counts.items()))
    text = f"**Lines of {len(counts)} machines are compared.** Run on: {listed}."
    by_run = {(r["data"], r["seed"]): _place(r) for r in records if r["method"] == reference}
    mixed: dict[str, int] = {}
    for record in records:
        if by_run.get((record["data"], record["seed"]), _place(record)) != _place(record):
            mixed[record["title"]] = mixed.get(record["title"], 0) + 1
    if by_run and not mixed:
        return f"{text} No comparison with the reference mixes them."
    if mixed:
        title = next(r["title"] for r in records if r["method"] == reference)
        rows = "; ".join(f"{name} {count}" for name, count in mixed.items())
        text += f" Not on the machine of {title}'s run with the same data and seed: {rows}."
    return text


def describe_changed(records: Sequence[Record]) -> str:
    """Name the methods that have changed since their runs; empty if there is none."""
    titles = {record["method"]: record["title"] for record in records}
    changed = [f"{titles[method]} ({what})" for method, what in changed_methods(records).items()]
    if not changed:
        return ""
    return f"**Changed since their runs{MARK}; run them again:** {'. '.join(changed)}."


def describe_origin(records: Sequence[Record], reference: str | None = None) -> list[str]:
    """Return sentences about changed methods, code and machines."""
    found = (describe_changed(records), describe_code(records), describe_machines(records, reference))
    return [sentence for sentence in found if sentence]
