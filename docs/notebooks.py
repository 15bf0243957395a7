"""Tutorials: from a script of cells to a notebook with its outputs, and to a page of the site.

    python docs/notebooks.py prices booster

runs docs/tutorials/prices.py and booster.py and writes the notebooks beside them. Without names it runs all.
A line `# %%` starts a cell of code, `# %% [markdown]` one of text, as in Jupytext, VS Code and PyCharm. Only
the outputs that a reader sees are kept: what is printed, the last expression, and figures.
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import io
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TUTORIALS = Path(__file__).parent / "tutorials"
_START = re.compile(r"^# %%(.*)$", flags=re.MULTILINE)


@dataclass(frozen=True)
class Cell:
    """The source of a cell of code or text."""

    kind: str
    source: str


def read_cells(script: str) -> list[Cell]:
    """Split a script into cells; text has its comment signs removed."""
    _, *rest = _START.split(script)
    cells = []
    for head, body in zip(rest[::2], rest[1::2], strict=True):
        if "[markdown]" in head:
            text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in body.strip().splitlines())
            cells.append(Cell("markdown", text))
        else:
            cells.append(Cell("code", body.strip()))
    return cells


def run_cells(cells: Sequence[Cell], name: str) -> list[list[dict[str, Any]]]:
    """Run the cells of code in order and return the outputs of each cell, as a notebook has them."""
    import matplotlib

    matplotlib.use("agg")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    return [_run(cell.source, name, namespace) if cell.kind == "code" else [] for cell in cells]


def _run(source: str, name: str, namespace: dict[str, Any]) -> list[dict[str, Any]]:
    from matplotlib import pyplot

    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    pyplot.close("all")  # figures of other code in this process are not this cell's
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, name, "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
    if value is not None and not figures:
        data = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = _lines(value._repr_html_())
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    for figure in figures:
        picture = io.BytesIO()
        figure.savefig(picture, dpi=90, bbox_inches="tight", metadata={"Software": None})
        data = {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": ["<Figure>"]}
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    pyplot.close("all")
    return outputs


def as_notebook(cells: Sequence[Cell], outputs: Sequence[list[dict[str, Any]]]) -> dict[str, Any]:
    """Return a notebook of version 4."""
    entries = []
    for number, (cell, shown) in enumerate(zip(cells, outputs, strict=True)):
        entry: dict[str, Any] = {"cell_type": cell.kind, "id": f"cell-{number}", "metadata": {}}
        entry["source"] = _lines(cell.source)
        if cell.kind == "code":
            entry |= {"execution_count": None, "outputs": shown}
        entries.append(entry)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": entries, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def as_markdown(notebook: dict[str, Any], name: str) -> str:
    """Return the page of a notebook; under its title, the page links to the notebook itself."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            if not parts:
                title, _, rest = source.partition("\n")
                link = f'<a href="{name}" download>Download this page as a notebook</a>'
                source = f"{title}\n\n{link}\n{rest}"
            parts.append(source)
        else:
            parts.append(f"```python\n{source}\n```")
            parts += [_shown(output) for output in cell["outputs"]]
    return "\n\n".join(parts) + "\n"


def _shown(output: dict[str, Any]) -> str:
    data = output.get("data", {"text/plain": output.get("text")})
    if "image/png" in data:
        inner = f'<img alt="The figure that this code draws" src="data:image/png;base64,{data["image/png"]}">'
    elif "text/html" in data:
        html = "".join(data["text/html"])
        inner = re.sub(r"<style.*?</style>\n?|\n\s*|<p>\d+ rows.*?</p>", "", html, flags=re.DOTALL)
        inner = inner.replace(' border="1" class="dataframe"', "")
    else:
        text = "".join(data["text/plain"]).replace("&", "&amp;").replace("<", "&lt;")
        inner = f"<pre><code>{text.rstrip()}</code></pre>"
    return f'<div class="output">{inner}</div>'


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run tutorials and write their notebooks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help="tutorials to run; all by default")
    names = parser.parse_args(arguments).names or [path.stem for path in sorted(TUTORIALS.glob("*.py"))]
    for name in names:
        start, script = time.perf_counter(), TUTORIALS / f"{name}.py"
        cells = read_cells(script.read_text(encoding="utf-8"))
        notebook = as_notebook(cells, run_cells(cells, script.name))
        text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
        script.with_suffix(".ipynb").write_text(text, encoding="utf-8")
        print(f"{script.stem}: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
