"""Results files: appending and reading."""

from pathlib import Path

import pytest

from tailwise.benchmark.run.results import ResultsFile, finished_runs, read_results


def test_results_file_drops_a_line_cut_off_by_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.jsonl"
    results = ResultsFile(path)
    for number in range(3):
        results.append({"data": "d", "method": "m", "seed": number})
    whole = path.read_bytes()
    for cut in range(1, len(whole.splitlines(keepends=True)[-1]) + 1):
        path.write_bytes(whole[:-cut])
        assert [r["seed"] for r in ResultsFile(path).records] == [0, 1]
        ResultsFile(path).append({"data": "d", "method": "m", "seed": 2})
        assert path.read_bytes() == whole


def test_results_file_names_a_broken_line(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text('{"seed": 0}\n{"seed"\n{"seed": 2}\n')
    with pytest.raises(ValueError, match=r"results.jsonl, line 2 is not JSON"):
        ResultsFile(path)


def test_reading_changes_no_file(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("one line, and no end to it")
    assert ResultsFile(path).records == []
    assert path.read_text() == "one line, and no end to it"


def test_last_good_line_counts() -> None:
    good = {"data": "d", "method": "m", "seed": 0, "options": 1}
    error = {"data": "d", "method": "m", "seed": 0, "error": "no"}
    assert finished_runs([error, good, {**good, "options": 2}, error])["d", "m", 0]["options"] == 2


@pytest.mark.parametrize(
    ("line", "lacking"),
    [
        ('{"method": "vir", "seed": 0}', "'data'"),
        ("[1]", "'data'"),
        ('{"data": "d", "method": "vir", "seed": 0, "recipe": {}, "digest": "x"}', "'metrics'"),
    ],
)
def test_lines_that_are_no_runs_are_named(tmp_path: Path, line: str, lacking: str) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text('{"error": "it broke", "data": "d", "method": "m", "seed": 0}\n' + line + "\n")
    with pytest.raises(ValueError, match=rf"other.jsonl is not a results file .* lacks {lacking} \(line 2\)"):
        read_results(path)
    with pytest.raises(ValueError, match="is a folder: name the results file in it"):
        read_results(tmp_path)
