"""How far a call walks: the files and functions of tailwise that it passes through, and how large rooms are.

Three calls are traced on 400 rows of the abalone table, with the default base and folds: `tailwise fit` with
a report, `TailRegressor.fit` and `TailRegressor.predict_interval`. Functions that run while a module is
imported do not count.

    python research/studies/walks.py                        # this checkout
    python research/studies/walks.py --src ../before/src    # another one
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import pkgutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[1]
ROWS = 400


class Walk:
    """Records, while it is active, which files and functions of a package are called, and from where."""

    def __init__(self, package: Path) -> None:
        self.package = str(package) + "/"
        self.functions: set[tuple[str, str]] = set()
        self.depth = 0  # most files that wait for one another

    def _file(self, frame: FrameType) -> str | None:
        name = frame.f_code.co_filename
        inside = name.startswith(self.package) and name.endswith(".py")  # no templates
        return name.removeprefix(self.package) if inside else None

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or (file := self._file(frame)) is None or frame.f_code.co_name == "<module>":
            return
        self.functions.add((file, frame.f_code.co_qualname))
        files: list[str] = []  # from the innermost call outwards; calls within a file count once
        back: FrameType | None = frame
        while back is not None:
            outer = self._file(back)
            if outer is not None and outer not in files[-1:]:
                files.append(outer)
            back = back.f_back
        self.depth = max(self.depth, len(files))

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)


def command(*arguments: str) -> Callable[[], None]:
    """A function that runs `tailwise` with these arguments and shows what it says only if it fails."""
    from tailwise.cli import main

    def run() -> None:
        said = io.StringIO()
        sys.argv = ["tailwise", *arguments]
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                main()
            except SystemExit as stop:
                if stop.code:
                    raise RuntimeError(f"tailwise {' '.join(arguments)} failed: {said.getvalue()}") from None

    return run


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--src", type=Path, default=ROOT / "src", help="folder that holds the package")
    source = parser.parse_args().src.resolve()
    package = source / "tailwise"
    sys.path.insert(0, str(source))
    found = importlib.import_module("tailwise")
    for module in pkgutil.walk_packages(found.__path__, "tailwise."):  # so that imports are no part of a walk
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    files, lines = Counter[str](), Counter[str]()
    for path in package.rglob("*.py"):
        room = path.relative_to(package).parts[0]
        files[room] += 1
        lines[room] += path.read_bytes().count(b"\n")
    for room, count in sorted(lines.items()):
        print(f"{room:20}{files[room]:>6} files{count:>8,} lines")
    print(f"{'together':20}{files.total():>6} files{lines.total():>8,} lines")

    from tailwise import TailRegressor
    from tailwise.data import load_abalone

    table = load_abalone().sample(ROWS, random_state=0)
    model = TailRegressor(epochs=2, random_state=0)
    with tempfile.TemporaryDirectory() as name:
        table.to_csv(f"{name}/abalone.csv", index=False)
        given = [f"{name}/abalone.csv", "--out", f"{name}/m.tailwise", "--report", f"{name}/m.html"]
        rings = table.pop("Rings")
        calls = {
            "tailwise fit": command("fit", *given, "--target", "Rings", "--epochs", "2"),
            "TailRegressor.fit": lambda: model.fit(table, rings),
            "TailRegressor.predict_interval": lambda: model.predict_interval(table),
        }
        for title, call in calls.items():
            walk = Walk(package)
            with walk.recording():
                call()
            count = len({file for file, _ in walk.functions})
            print(f"{title:32}{count:>4} files, {len(walk.functions):>4} functions, depth {walk.depth}")


if __name__ == "__main__":
    main()
