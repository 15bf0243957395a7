"""How far a call walks: the files and functions of tailwise that it passes through.

Four calls are traced on 400 rows of the abalone table: `tailwise fit` with a report, `TailRegressor.fit`,
`TailRegressor.predict_interval`, and `tailwise bench suite`. Functions that run while a module is imported
do not count.

    python benchmarks/walks.py                        # this checkout
    python benchmarks/walks.py --src ../before/src    # another one
    python benchmarks/walks.py --save walks.json      # also write the walks to a file
    python benchmarks/walks.py --draw before.json after.json --out docs/img    # one picture per walk
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import pkgutil
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
ROWS = 400
FIGURES = ("files", "hops", "depth", "functions", "lines")
WALKS = ("tailwise fit", "TailRegressor.fit", "TailRegressor.predict_interval", "tailwise bench suite")


class Walk:
    """Records, while it is active, which files and functions of a package are called, and from where."""

    def __init__(self, package: Path) -> None:
        self.package = str(package) + "/"
        self.functions: set[tuple[str, str]] = set()
        self.parents: dict[str, str | None] = {}  # file: the file that called it first
        self.hops: set[tuple[str, str]] = set()  # calling file, called file
        self.lines: set[tuple[str, int]] = set()  # lines of code of the functions
        self.depth = 0  # most files that wait for one another

    def _file(self, frame: FrameType) -> str | None:
        name = frame.f_code.co_filename
        inside = name.startswith(self.package) and name.endswith(".py")  # no templates
        return name.removeprefix(self.package) if inside else None

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or (file := self._file(frame)) is None or frame.f_code.co_name == "<module>":
            return
        function = (file, frame.f_code.co_qualname)
        if function not in self.functions:
            self.functions.add(function)
            self.lines |= {(file, line) for *_, line in frame.f_code.co_lines() if line is not None}
        stack = self._stack(frame)
        self.depth = max(self.depth, len(stack))
        caller = stack[1] if len(stack) > 1 else None
        self.parents.setdefault(file, caller)
        if caller is not None:
            self.hops.add((caller, file))

    def _stack(self, frame: FrameType) -> list[str]:
        """Files from the innermost call outwards; calls within a file count once."""
        files: list[str] = []
        back: FrameType | None = frame
        while back is not None:
            file = self._file(back)
            if file is not None and file not in files[-1:]:
                files.append(file)
            back = back.f_back
        return files

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)

    def as_dict(self) -> dict[str, Any]:
        """Numbers of the walk, and its files, each with the file that first called it."""
        return {
            "files": len(self.parents),
            "hops": len(self.hops),
            "depth": self.depth,
            "functions": len(self.functions),
            "lines": len(self.lines),
            "first_called_by": self.parents,
        }


def import_everything(package: str) -> None:
    """Import every module, so that imports are no part of a walk."""
    found = importlib.import_module(package)
    for module in pkgutil.walk_packages(found.__path__, f"{package}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


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


def take_walks(package: Path) -> dict[str, dict[str, Any]]:
    """Trace the four calls."""
    from tailwise import TailRegressor
    from tailwise.data import load_abalone

    table = load_abalone().sample(ROWS, random_state=0)
    rings = table["Rings"]
    inputs = table.drop(columns="Rings")
    settings = TailRegressor().get_params()
    # One network without a base, as every version can fit it.
    same = {"method": "vir", "base": None, "folds": 1, "emphasis": 0.0}
    same = {name: value for name, value in same.items() if name in settings}
    model = TailRegressor(epochs=2, random_state=0, **same)
    alone = ["--base", "none", "--folds", "1"] if "base" in settings else []
    walks = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table.to_csv(folder / "abalone.csv", index=False)
        files = [f"{folder}/abalone.csv", "--out", f"{folder}/m.tailwise", "--report", f"{folder}/m.html"]
        suite = ["--seeds", "1", "--methods", "vanilla,vir", "--epochs", "1", "--trials", "1"]
        places = ["--out", f"{folder}/results", "--work", f"{folder}/work"]
        calls = (
            command("fit", *files, *alone, "--target", "Rings", "--epochs", "2"),
            lambda: model.fit(inputs, rings),
            lambda: model.predict_interval(inputs, coverage=0.9),
            command("bench", "suite", "quick", *suite, *places),
        )
        for title, call in zip(WALKS, calls, strict=True):
            walk = Walk(package)
            with walk.recording():
                call()
            walks[title] = walk.as_dict()
    return walks


def measure(source: Path) -> dict[str, Any]:
    """Size of a checkout, and its four walks."""
    package = source / "tailwise"
    modules = sorted(p.relative_to(package) for p in package.rglob("*.py") if p.name != "__init__.py")
    contracts = tomllib.loads((source.parent / "pyproject.toml").read_text(encoding="utf-8"))
    layers = [c for c in contracts["tool"]["importlinter"]["contracts"] if c["type"] == "layers"]
    return {
        "lines": sum(p.read_bytes().count(b"\n") for p in package.rglob("*.py")),
        "modules": Counter(m.parts[0] if len(m.parts) > 1 else "tailwise" for m in modules),
        "contract_lines": sum(len(contract["layers"]) for contract in layers),
        "walks": take_walks(package),
    }


def show(found: dict[str, Any]) -> None:
    rooms = ", ".join(f"{room} {count}" for room, count in sorted(found["modules"].items()))
    print(f"lines of src: {found['lines']:,}")
    print(f"modules (without __init__): {sum(found['modules'].values())}: {rooms}")
    print(f"lines of the import contract: {found['contract_lines']}")
    print(f"{'walk':32}" + "".join(f"{name:>11}" for name in FIGURES))
    for title, walk in found["walks"].items():
        print(f"{title:32}" + "".join(f"{walk[name]:>11,}" for name in FIGURES))


# -- pictures ------------------------------------------------------------------------------------

LINE, INDENT, COLUMN, TOP = 17, 16, 430, 64
STYLE = """
text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #1f2328 }
.title { font-weight: 600; font-size: 14px } .note { fill: #59636e } path { stroke: #8c959f; fill: none }
@media (prefers-color-scheme: dark) {
  rect { fill: #0d1117 } text { fill: #e6edf3 } .note { fill: #9198a1 } path { stroke: #6e7681 }
}
"""


def tree(parents: dict[str, str | None]) -> list[tuple[str, int, int | None]]:
    """File, depth and line of its parent, each file below the one that called it first."""
    lines: list[tuple[str, int, int | None]] = []

    def add(file: str, depth: int, above: int | None) -> None:
        lines.append((file, depth, above))
        place = len(lines) - 1
        for child, parent in parents.items():
            if parent == file and child != file:
                add(child, depth + 1, place)

    for file, parent in parents.items():
        if parent is None:
            add(file, 0, None)
    return lines


def draw(title: str, before: dict[str, Any], after: dict[str, Any]) -> str:
    """SVG of a walk before and after, as two trees of files."""
    trees = [tree(walk["first_called_by"]) for walk in (before, after)]
    height = TOP + LINE * max(map(len, trees)) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * COLUMN} {height}" role="img">',
        f"<title>{escape(title)}: the files it passes through, before and after</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{2 * COLUMN}" height="{height}" fill="#ffffff"/>',
    ]
    for column, (name, walk, lines) in enumerate(
        zip(("before", "after"), (before, after), trees, strict=True)
    ):
        left = 14 + column * COLUMN
        counts = ", ".join(f"{walk[name]} {name}" for name in ("files", "hops", "functions"))
        parts.append(f'<text class="title" x="{left}" y="24">{escape(title)}, {name}</text>')
        parts.append(f'<text class="note" x="{left}" y="42">{counts}</text>')
        for place, (file, depth, above) in enumerate(lines):
            x, y = left + depth * INDENT, TOP + place * LINE
            if above is not None:
                corner = left + (depth - 1) * INDENT + 4
                parts.append(f'<path d="M{corner} {TOP + above * LINE + 4}V{y - 4}H{x - 3}"/>')
            parts.append(f'<text x="{x}" y="{y}">{escape(file.removesuffix(".py"))}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--src", type=Path, default=ROOT / "src", help="folder that holds the package")
    parser.add_argument("--save", type=Path, help="JSON file to write")
    parser.add_argument("--draw", type=Path, nargs=2, metavar=("BEFORE", "AFTER"), help="files of --save")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "img", help="folder of the pictures")
    args = parser.parse_args()
    if args.draw:
        before, after = (json.loads(path.read_text(encoding="utf-8"))["walks"] for path in args.draw)
        for title in WALKS:
            name = "walk-" + title.lower().replace(" ", "-").replace(".", "-").replace("_", "-")
            path = args.out / f"{name}.svg"
            path.write_text(draw(title, before[title], after[title]), encoding="utf-8")
            print(f"wrote {path}")
        return
    source = args.src.resolve()
    sys.path.insert(0, str(source))
    import_everything("tailwise")
    found = measure(source)
    show(found)
    if args.save:
        args.save.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
