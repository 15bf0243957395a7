"""The load test runs in small: no answer is wrong or lost, also at twice the capacity."""

from __future__ import annotations

import re

import pytest

from research.studies import serving_load


@pytest.mark.slow
def test_load(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--requests 80 --clients 4 --seconds 3 --rows 300 --epochs 1 --plain --max-waiting 4"
    code = serving_load.main(words.split())
    out = capsys.readouterr().out
    assert code == 0, out
    assert "80 answers" in out and out.count("wrong 0, lost 0") == 2 and "code 0" in out
    refused = re.search(r"(\d+) refused", out)
    assert refused is not None and int(refused[1]) > 0
