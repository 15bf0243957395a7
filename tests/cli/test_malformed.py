"""100 generated malformed tables: never a traceback, never a lost file; `make fuzz` tries 500."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

Run = Callable[..., Any]
Sample = Callable[..., pd.DataFrame]
FILES = 100


def malformed(number: int, sample: Sample) -> bytes:
    """One of many ways in which a table can be broken, always the same for a number."""
    rng = np.random.default_rng(number)
    content = bytearray(sample(int(rng.integers(1, 40)), number, text=True).to_csv(index=False).encode())
    for _ in range(int(rng.integers(1, 4))):
        content = bytearray(broken(content, int(rng.integers(0, 14)), rng))
    return bytes(content)


def broken(content: bytearray, kind: int, rng: np.random.Generator) -> bytes | bytearray:
    at = int(rng.integers(0, max(len(content), 1)))
    whole = bytes(content)
    if kind == 0:
        return whole[:at]
    if kind == 1:
        return whole[:at] + rng.bytes(int(rng.integers(1, 200))) + whole[at:]
    if kind == 2:
        odd = bytes(rng.choice(list(b'",;\n\r\t|\x00'), int(rng.integers(1, 9))).tolist())
        return whole[:at] + odd + whole[at:]
    if kind == 3:
        return whole[:at] + whole[at + int(rng.integers(1, 60)) :]
    if kind == 4:
        return whole.replace(b",", [b";", b"\t", b"||", b" , "][at % 4])
    if kind == 5:
        return whole.decode("latin-1").encode(["utf-16", "utf-32", "utf-7"][at % 3])
    if kind == 6:
        return gzip.compress(whole, mtime=0)[: None if at % 2 else -5]
    if kind == 7:
        return whole.replace(b"price", [b"x", b"", b"PRICE", b"1"][at % 4], 1)
    if kind == 8:
        words = [b"inf", b"-1e999", b"nan", b"", b"1e308", b"1,5", b"0x1F", b"NULL", b"=SUM(A1)"]
        return whole + b"1,2,red," + words[at % len(words)] + b"\n"
    if kind == 9:
        return whole[whole.find(b"\n") + 1 :]
    if kind == 10:
        return b"\n".join([whole] * 2)
    if kind == 11:
        return whole[:at] + b"\n" * int(rng.integers(1, 9)) + whole[at:]
    if kind == 12:
        return [b"PAR1", b"PK\x03\x04", b"\xff\xfe", b"\xef\xbb\xbf"][at % 4] + whole
    return whole.replace(b"\n", [b"\r", b"\n\n", b",\n", b"\x0b"][at % 4])


def lines_for(number: int, path: Path, place: Path, folder: Path) -> list[list[str]]:
    """Commands to run on a file: always `diagnose`, now and then one that takes longer."""
    model, out = str(place / "m.tailwise"), str(folder / "kept")
    rarely = [
        ["predict", model, str(path), "-o", out, "--force"],
        ["evaluate", model, str(path), "-t", "price"],
        ["fit", str(path), "-t", "price", "-o", out, "--force", "--epochs", "1", "--folds", "1"],
        ["compare", str(path), "-t", "price", "--methods", "vanilla", "--seeds", "1", "--epochs", "1"],
    ]
    always = ["diagnose", str(path), "-t", "price"]
    return [always, *([rarely[number // 20 % 4]] if number % 20 == 0 else [])]


def test_malformed_files_never_crash_and_never_cost_a_file(
    run: Run, sample: Sample, place: Path, tmp_path: Path
) -> None:
    codes, kept = {0: 0, 1: 0}, tmp_path / "kept"
    for number in range(FILES):
        path, content = tmp_path / f"{number}.csv", malformed(number, sample)
        path.write_bytes(content)
        for arguments in lines_for(number, path, place, tmp_path):
            kept.write_text("mine")
            out = run(*arguments)
            where = (number, arguments[0], out.exit_code, out.stderr)
            assert out.exception is None or isinstance(out.exception, SystemExit), where
            assert out.exit_code in codes, where
            assert "unexpected" not in out.stderr, where
            assert out.exit_code == 0 or out.stderr.count("error: ") == 1, where
            assert path.read_bytes() == content, where
            written = out.exit_code == 0 and str(kept) in arguments
            assert (kept.read_text(errors="replace") != "mine") == written, where
            assert {p.name for p in tmp_path.iterdir()} == {path.name, "kept"}, where
            codes[out.exit_code] += 1
        path.unlink()
    assert min(codes.values()) >= 20  # both ends were seen
