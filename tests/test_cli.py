"""The command line: every command, every exit code, and what must never happen."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from tailwise.cli.commands import app

SRC = Path(__file__).parents[1] / "src"
FAST = ["--epochs", "2", "--quiet"]


def run(*arguments: object, stdin: bytes | None = None) -> Any:
    """Run the command in this process."""
    return CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)


def command(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command as users do."""
    return subprocess.run(
        [sys.executable, "-m", "tailwise", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=300,
        **options,
    )


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(SRC), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}


def sample(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2))
    kind = rng.choice(["red", "blue"], rows)
    y = np.exp(x[:, 0]) + (kind == "red") + 0.1 * rng.normal(size=rows)
    return pd.DataFrame({"x": x[:, 0], "z": x[:, 1], "kind": kind, "price": y.round(3)})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table, a model, its report, and results of a comparison."""
    folder = tmp_path_factory.mktemp("cli")
    sample().to_csv(folder / "houses.csv", index=False)
    sample(150, seed=1).to_csv(folder / "new.csv", index=False)
    out = run("fit", folder / "houses.csv", "-t", "price", "-o", folder / "m.tailwise",
              "--report", folder / "m.html", "--seed", 3, *FAST)  # fmt: skip
    assert out.exit_code == 0, out.output
    return folder


# -- commands ------------------------------------------------------------------------------------


def test_help_is_instant_and_names_every_command() -> None:
    fastest = np.inf
    for _ in range(3):
        began = time.perf_counter()
        out = command("--help")
        fastest = min(fastest, time.perf_counter() - began)
    assert out.returncode == 0
    for name in [
        "demo",
        "diagnose",
        "fit",
        "predict",
        "evaluate",
        "compare",
        "bench",
        "report",
        "export",
        "methods",
    ]:
        assert name in out.stdout
    assert fastest < 1.5  # 0.3 s on an idle machine; heavy imports would take several


def test_help_needs_no_heavy_import() -> None:
    heavy = {"torch", "pandas", "numpy", "matplotlib"}
    code = f"import sys, tailwise.cli.commands; print(sorted({heavy} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    assert out.stdout.strip() == "[]"


def test_fit_writes_a_model_and_a_report_and_nothing_else(place: Path) -> None:
    left = sorted(p.name for p in place.iterdir() if p.name.startswith("m."))
    assert left == ["m.html", "m.tailwise"]
    page = (place / "m.html").read_text(encoding="utf-8")
    assert "Verdict" in page and "Vanilla" in page
    assert len(page) < 2_000_000


def test_predict_evaluate_and_export(place: Path, tmp_path: Path) -> None:
    out = run("predict", place / "m.tailwise", place / "new.csv", "-o", tmp_path / "p.csv", "--keep", "kind")
    assert out.exit_code == 0, out.output
    table = pd.read_csv(tmp_path / "p.csv")
    assert list(table.columns)[:5] == ["kind", "prediction", "std", "lower", "upper"]
    assert len(table) == 150 and bool((table["lower"] <= table["upper"]).all())
    out = run("evaluate", place / "m.tailwise", place / "new.csv", "--json", "--report", tmp_path / "e.html")
    assert out.exit_code == 0, out.output
    told = json.loads(out.stdout)
    assert told["target"] == "price" and told["regions"]["all"]["n"] == 150
    assert (tmp_path / "e.html").exists()
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    out = run("export", place / "m.tailwise", "-o", tmp_path / "m.onnx")
    assert out.exit_code == 0, out.output
    assert (tmp_path / "m.onnx").stat().st_size > 0


def test_a_column_of_numbers_where_training_had_text_is_no_traceback(place: Path, tmp_path: Path) -> None:
    sample(20).assign(kind=7, x="far").to_csv(tmp_path / "odd.csv", index=False)
    out = run("predict", place / "m.tailwise", tmp_path / "odd.csv", "-o", tmp_path / "p.csv")
    assert out.exit_code in (0, 1)
    assert "unexpected" not in out.output


def test_standard_input_and_output(place: Path) -> None:
    with (place / "new.csv").open() as table:
        out = command("predict", place / "m.tailwise", "-", "-o", "-", stdin=table)
    assert out.returncode == 0, out.stderr
    assert len(out.stdout.splitlines()) == 151
    assert "Traceback" not in out.stderr
    out = run("diagnose", "-", "-t", "price", "--json", stdin=(place / "new.csv").read_bytes())
    assert out.exit_code == 0 and json.loads(out.stdout)["n"] == 150


def test_a_reader_that_stops_early_is_no_error(place: Path) -> None:
    line = f'"{sys.executable}" -m tailwise predict {place}/m.tailwise {place}/new.csv -o - | head -1'
    out = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=environment())
    assert out.stdout.startswith("prediction,")
    assert "Traceback" not in out.stderr and "BrokenPipe" not in out.stderr


def test_diagnose_says_it_in_words_numbers_and_a_picture(place: Path, tmp_path: Path) -> None:
    out = run("diagnose", place / "houses.csv", "--target", "price", "--plot", tmp_path / "p.png")
    assert out.exit_code == 0 and "Verdict:" in out.stdout
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    out = run("diagnose", place / "houses.csv", "--target", "price", "--plot", tmp_path / "p.xyz")
    assert out.exit_code == 1 and ".png, .svg or .pdf" in out.stderr
    only = tmp_path / "only.csv"
    only.write_text("y\n" + "\n".join(map(str, range(200))) + "\n")
    assert run("diagnose", only, "-t", "y").exit_code == 0


def test_compare_and_report_rank_methods(place: Path, tmp_path: Path) -> None:
    results, page = tmp_path / "r.jsonl", tmp_path / "r.html"
    arguments = ["compare", place / "houses.csv", "-t", "price", "--methods", "vanilla,vir", "--seeds", "2"]
    out = run(*arguments, "-o", results, "--report", page, *FAST)
    assert out.exit_code == 0, out.output
    assert "lowest error" in out.stdout
    assert len(results.read_text().splitlines()) == 4
    assert not (tmp_path / "r.jsonl.checkpoint").exists()
    out = run("report", results, "-o", tmp_path / "again.html")
    assert out.exit_code == 0, out.output
    text = (tmp_path / "again.html").read_text(encoding="utf-8")
    assert "VIR" in text and 'role="img"' in text
    out = run("report", place / "houses.csv", "-o", tmp_path / "no.html")
    assert out.exit_code == 1 and "error:" in out.stderr
    out = run("compare", place / "houses.csv", "-t", "price", "--methods", "virr")
    assert out.exit_code == 1 and "'vir'" in out.stderr


def test_methods_and_bench_delegate() -> None:
    listed = json.loads(run("methods", "--json").stdout)
    assert {"vir", "vanilla"} <= {m["name"] for m in listed}
    assert "vir" in run("methods").stdout
    out = command("bench", "--help")
    assert out.returncode == 0 and "prepare" in out.stdout


def test_version() -> None:
    assert run("--version").stdout.startswith("tailwise ")


# -- settings ------------------------------------------------------------------------------------


def test_a_configuration_file_gives_defaults_that_flags_override(place: Path, tmp_path: Path) -> None:
    config = tmp_path / "fit.toml"
    config.write_text(
        'target = "price"\nmethod = "lds"\nepochs = 1\ndrop = ["z"]\nquiet = true\n'
        '[option]\n"weights.power" = 0.7\n'
    )
    out = run("fit", place / "houses.csv", "--config", config, "-o", tmp_path / "m", "--json")
    assert out.exit_code == 0, out.output
    from tailwise import TailRegressor

    model = TailRegressor.load(tmp_path / "m")
    assert (model.method, model.epochs, model.method_options) == ("lds", 1, {"weights": {"power": 0.7}})
    assert list(model.feature_names_in_) == ["x", "kind"]
    out = run("fit", place / "houses.csv", "--config", config, "-o", tmp_path / "m2", "--method", "vanilla",
              "--option", "regularizer=0", "--test-share", "0")  # fmt: skip
    assert out.exit_code == 0, out.output
    assert TailRegressor.load(tmp_path / "m2").method == "vanilla"


@pytest.mark.parametrize(
    ("text", "words"),
    [('methd = "vir"\n', "did you mean 'method'?"), ("epochs = [\n", "not valid TOML")],
)
def test_wrong_configuration_names_the_key(place: Path, tmp_path: Path, text: str, words: str) -> None:
    config = tmp_path / "c.toml"
    config.write_text(text)
    out = run("fit", place / "houses.csv", "-t", "price", "-o", tmp_path / "m", "--config", config)
    assert out.exit_code == 1 and words in out.stderr
    out = run(
        "fit", place / "houses.csv", "-t", "price", "-o", tmp_path / "m", "--config", tmp_path / "no.toml"
    )
    assert out.exit_code == 1 and "no.toml" in out.stderr


def test_the_same_seed_gives_the_same_file(place: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        out = run("fit", place / "houses.csv", "-t", "price", "-o", tmp_path / name, "--seed", "3", *FAST)
        assert out.exit_code == 0, out.output
    first, second = (pd.read_csv(_predicted(tmp_path / n, place, tmp_path)) for n in ("a", "b"))
    pd.testing.assert_frame_equal(first, second)


def _predicted(model: Path, place: Path, folder: Path) -> Path:
    out = folder / f"{model.name}.csv"
    assert run("predict", model, place / "new.csv", "-o", out).exit_code == 0
    return out


def test_own_validation_and_test_tables(place: Path, tmp_path: Path) -> None:
    out = run("fit", place / "houses.csv", "-t", "price", "-o", tmp_path / "m", "--valid", place / "new.csv",
              "--test", place / "new.csv", "--json", *FAST)  # fmt: skip
    assert out.exit_code == 0, out.output
    assert json.loads(out.stdout)["regions"]["all"]["n"] == 150
    sample(50).drop(columns="kind").to_csv(tmp_path / "short.csv", index=False)
    out = run(
        "fit", place / "houses.csv", "-t", "price", "-o", tmp_path / "m2", "--test", tmp_path / "short.csv"
    )
    assert out.exit_code == 1 and "no column 'kind'" in out.stderr


# -- what users get wrong ------------------------------------------------------------------------


@pytest.fixture
def trouble(tmp_path: Path) -> dict[str, Path]:
    contents = {
        "empty.csv": b"",
        "header.csv": b"x,price\n",
        "text.csv": b"x,price\n1,cheap\n2,dear\n3,cheap\n",
        "binary.csv": bytes(range(256)) * 30,
        "zip.csv": b"PK\x03\x04" + b"a" * 50,
        "twice.csv": b"x,x,price\n1,2,3\n",
        "ragged.csv": b"x,price\n1,2\n1,2,3\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    return {name: tmp_path / name for name in [*contents, "folder", "missing.csv"]}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("empty.csv", "is empty"),
        ("header.csv", "no rows"),
        ("text.csv", "must be numbers, but line 2 holds 'cheap'"),
        ("binary.csv", "binary"),
        ("zip.csv", "Excel"),
        ("twice.csv", "both named 'x'"),
        ("ragged.csv", "line 3"),
        ("folder", "is a folder"),
        ("missing.csv", "does not exist"),
    ],
)
def test_unusable_tables_end_with_a_line_and_code_1(
    place: Path, trouble: dict[str, Path], tmp_path: Path, name: str, words: str
) -> None:
    for arguments in (
        ["diagnose", trouble[name], "-t", "price"],
        ["fit", trouble[name], "-t", "price", "-o", tmp_path / "m"],
        ["compare", trouble[name], "-t", "price"],
        ["evaluate", place / "m.tailwise", trouble[name], "-t", "price"],
    ):
        out = run(*arguments)
        assert out.exit_code == 1, arguments
        assert out.stderr.count("error:") == 1 and words in out.stderr, out.stderr
    assert not (tmp_path / "m").exists()


def test_wrong_columns_name_the_nearest(place: Path, tmp_path: Path) -> None:
    out = command("fit", place / "houses.csv", "--target", "prise", "--out", tmp_path / "m")
    assert out.returncode == 1
    assert out.stderr.strip().endswith("did you mean 'price'?")
    assert "Traceback" not in out.stderr
    sample(20).drop(columns=["kind"]).to_csv(tmp_path / "short.csv", index=False)
    out = run("predict", place / "m.tailwise", tmp_path / "short.csv", "-o", tmp_path / "p.csv")
    assert out.exit_code == 1 and "no column 'kind'" in out.stderr
    out = run("predict", place / "m.tailwise", place / "new.csv", "-o", tmp_path / "p.csv", "--keep", "kin")
    assert out.exit_code == 1 and "'kind'" in out.stderr


def test_the_target_of_an_evaluation_is_asked_for_when_unclear(place: Path, tmp_path: Path) -> None:
    sample(40).assign(other=1).to_csv(tmp_path / "two.csv", index=False)
    assert run("evaluate", place / "m.tailwise", tmp_path / "two.csv").exit_code == 0  # the model knows it
    sample(40).rename(columns={"price": "cost"}).to_csv(tmp_path / "renamed.csv", index=False)
    out = run("evaluate", place / "m.tailwise", tmp_path / "renamed.csv", "--json")
    assert out.exit_code == 0 and json.loads(out.stdout)["target"] == "cost"  # the only other column
    sample(40).rename(columns={"price": "cost"}).assign(other=1).to_csv(tmp_path / "both.csv", index=False)
    out = run("evaluate", place / "m.tailwise", tmp_path / "both.csv")
    assert out.exit_code == 1 and "columns cost, other could be it" in out.stderr
    assert run("evaluate", place / "m.tailwise", tmp_path / "both.csv", "-t", "cost").exit_code == 0


def test_models_that_are_none(place: Path, tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"junk" * 100)
    for path in (tmp_path / "junk", tmp_path / "none", tmp_path, place / "houses.csv"):
        out = run("predict", path, place / "new.csv", "-o", tmp_path / "p.csv")
        assert out.exit_code == 1 and out.stderr.startswith("error:"), out.stderr


def test_wrong_usage_is_code_2(place: Path, tmp_path: Path) -> None:
    for arguments in (
        ["fit", place / "houses.csv"],
        ["fit", place / "houses.csv", "-t", "price", "-o", tmp_path / "m", "--epochs", "many"],
        ["fit", place / "houses.csv", "-t", "price", "-o", tmp_path / "m", "--nonsense"],
        ["nonsense"],
    ):
        assert run(*arguments).exit_code == 2
    out = command("fit")
    assert out.returncode == 2 and "Traceback" not in out.stderr


def test_unknown_names_are_answered_before_any_work(place: Path, tmp_path: Path) -> None:
    base = ["fit", place / "houses.csv", "-t", "price", "-o", tmp_path / "m", *FAST]
    for extra, words in (
        (["--method", "vri"], "'vir'"),
        (["--option", "regularizr=1"], "'regularizer'"),
        (["--option", "what"], "NAME=VALUE"),
        (["--backbone", "mpl"], "'mlp'"),
    ):
        out = run(*base, *extra)
        assert out.exit_code == 1 and words in out.stderr, out.stderr
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten_without_force(place: Path, tmp_path: Path) -> None:
    for name in ("m", "r.html", "p.csv"):
        (tmp_path / name).write_text("mine")
    fit = ["fit", place / "houses.csv", "-t", "price", *FAST]
    for arguments in (
        [*fit, "-o", tmp_path / "m"],
        [*fit, "-o", tmp_path / "m2", "--report", tmp_path / "r.html"],
        ["predict", place / "m.tailwise", place / "new.csv", "-o", tmp_path / "p.csv"],
    ):
        out = run(*arguments)
        assert out.exit_code == 1 and "--force" in out.stderr
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == dict.fromkeys(
        ("m", "r.html", "p.csv"), "mine"
    )
    out = run("predict", place / "m.tailwise", place / "new.csv", "-o", tmp_path / "p.csv", "--force")
    assert out.exit_code == 0 and (tmp_path / "p.csv").read_text() != "mine"
    copy = shutil.copy(place / "new.csv", tmp_path / "in.csv")
    out = run("predict", place / "m.tailwise", copy, "-o", copy, "--force")
    assert out.exit_code == 1 and "also an input" in out.stderr
    assert Path(copy).read_bytes() == (place / "new.csv").read_bytes()


def test_leaking_columns_are_pointed_out(place: Path, tmp_path: Path) -> None:
    table = sample(60)
    table.assign(copy=table["price"] * 2).to_csv(tmp_path / "leak.csv", index=False)
    out = run("fit", tmp_path / "leak.csv", "-t", "price", "-o", tmp_path / "m", "--epochs", "1")
    assert out.exit_code == 0, out.output
    assert "--drop copy" in out.stderr


# -- what the world does -------------------------------------------------------------------------


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_half_written_and_can_go_on(tmp_path: Path) -> None:
    sample(3000).to_csv(tmp_path / "big.csv", index=False)
    line = [sys.executable, "-m", "tailwise", "fit", "big.csv", "-t", "price", "-o", "m", "--epochs", "400",
            "--option", "kl=0.001"]  # fmt: skip
    process = subprocess.Popen(line, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (tmp_path / "m.checkpoint").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "stopped" in said and "m.checkpoint" in said and "Traceback" not in said
    assert sorted(p.name for p in tmp_path.iterdir()) == ["big.csv", "m.checkpoint"]
    import torch

    reached = torch.load(tmp_path / "m.checkpoint", weights_only=True)["epoch"]
    shorter = [word if word != "400" else str(reached + 1) for word in line[3:]]
    out = command(*shorter, cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    assert "going on from" in out.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["big.csv", "m"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.name != "posix" or os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True)
    if made.returncode != 0:
        pytest.skip(f"cannot mount a small disk here: {made.stderr.decode().strip()}")
    yield disk
    # Lazily: a writer that failed may hold its file until it is collected.
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_full_disk_is_an_error_and_leaves_no_part(place: Path, small_disk: Path) -> None:
    kept = small_disk / "kept.csv"
    kept.write_text("mine")
    big = pd.concat([sample(400)] * 10)
    big.to_csv(place / "long.csv", index=False)
    for arguments in (
        ["fit", place / "houses.csv", "-t", "price", "-o", small_disk / "m", *FAST],
        ["predict", place / "m.tailwise", place / "long.csv", "-o", kept, "--force"],
        ["evaluate", place / "m.tailwise", place / "new.csv", "--report", small_disk / "r.html"],
    ):
        out = run(*arguments)
        assert out.exit_code == 1 and out.stderr.startswith("error:"), out.stderr
        assert "unexpected" not in out.stderr
        assert [p.name for p in small_disk.iterdir()] == ["kept.csv"]
    assert kept.read_text() == "mine"


def malformed(number: int) -> bytes:
    """One of many ways in which a table can be broken, always the same for a number."""
    rng = np.random.default_rng(number)
    content = bytearray(sample(int(rng.integers(1, 40)), number).to_csv(index=False).encode())

    def place_in() -> int:
        return int(rng.integers(0, max(len(content), 1)))

    for _ in range(int(rng.integers(1, 4))):
        kind = int(rng.integers(0, 14))
        at = place_in()
        if kind == 0:
            del content[at:]
        elif kind == 1:
            content[at:at] = rng.bytes(int(rng.integers(1, 200)))
        elif kind == 2:
            content[at:at] = bytes(rng.choice(list(b'",;\n\r\t|\x00'), int(rng.integers(1, 9))).tolist())
        elif kind == 3:
            del content[at : at + int(rng.integers(1, 60))]
        elif kind == 4:
            content = bytearray(bytes(content).replace(b",", [b";", b"\t", b"||", b" , "][at % 4]))
        elif kind == 5:
            content = bytearray(
                bytes(content).decode("latin-1").encode(["utf-16", "utf-32", "utf-7"][at % 3])
            )
        elif kind == 6:
            content = bytearray(gzip.compress(bytes(content))[: None if at % 2 else -5])
        elif kind == 7:
            content = bytearray(bytes(content).replace(b"price", [b"x", b"", b"PRICE", b"1"][at % 4], 1))
        elif kind == 8:
            words = [b"inf", b"-1e999", b"nan", b"", b"1e308", b"1,5", b"0x1F", b"NULL", b"=SUM(A1)"]
            content += b"1,2,red," + words[at % len(words)] + b"\n"
        elif kind == 9:
            content = bytearray(content[content.find(b"\n") + 1 :])
        elif kind == 10:
            content = bytearray(b"\n".join([bytes(content)] * 2))
        elif kind == 11:
            content[at:at] = b"\n" * int(rng.integers(1, 9))
        elif kind == 12:
            content = bytearray(
                [b"PAR1", b"PK\x03\x04", b"\xff\xfe", b"\xef\xbb\xbf"][at % 4] + bytes(content)
            )
        else:
            content = bytearray(bytes(content).replace(b"\n", [b"\r", b"\n\n", b",\n", b"\x0b"][at % 4]))
    return bytes(content)


@pytest.mark.slow
def test_300_malformed_files_never_crash_and_are_never_changed(place: Path, tmp_path: Path) -> None:
    codes = {0: 0, 1: 0}
    for number in range(300):
        path = tmp_path / f"{number}.csv"
        content = malformed(number)
        path.write_bytes(content)
        checks = [["diagnose", path, "-t", "price", "--quiet"]]
        if number % 5 == 0:
            checks.append(
                ["predict", place / "m.tailwise", path, "-o", tmp_path / "p.csv", "--force", "--quiet"]
            )
        if number % 30 == 0:
            checks.append(["fit", path, "-t", "price", "-o", tmp_path / "m", "--force", *FAST])
        for arguments in checks:
            out = run(*arguments)
            assert out.exit_code in codes, (number, arguments[0], out.exception)
            assert "Traceback" not in out.output and "unexpected" not in out.output, (number, out.output)
            assert (out.exit_code == 0) or out.stderr.count("error:") == 1, (number, out.output)
            codes[out.exit_code] += 1
        assert path.read_bytes() == content
    assert min(codes.values()) > 30  # both ends were seen


def test_an_unforeseen_error_is_one_line_too(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tailwise.diagnosis

    def broken(*_: object, **__: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(tailwise.diagnosis, "diagnose", broken)
    out = run("diagnose", place / "houses.csv", "-t", "price")
    assert out.exit_code == 1 and "unexpected KeyError" in out.stderr and "TAILWISE_DEBUG" in out.stderr
    monkeypatch.setenv("TAILWISE_DEBUG", "1")
    assert isinstance(run("diagnose", place / "houses.csv", "-t", "price").exception, KeyError)
