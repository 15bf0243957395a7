"""Hooks of mkdocs: pages from notebooks and from outside docs/, and their links."""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.notebooks import as_markdown

ROOT = Path(__file__).parents[1]
OUTSIDE = "repository"
"""Folder of the site for pages that lie outside docs/."""
INCLUDED = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "src/tailwise/data/README.md",
    *(
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "research").rglob("*.md"))
        if path.parent.name != "templates"
    ),
    *(path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("examples/*/README.md"))),
    *(path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("examples/*.py"))),
)
_LINK = re.compile(r"(\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^)\s]+)\)")
_ROW = re.compile(r"^\| ([A-Z]+:.*) \|$", flags=re.MULTILINE)
_FENCE = re.compile(r"(^```.*?^```$)", flags=re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every notebook, and for every file outside docs/ that pages link to."""
    for path in sorted((ROOT / "docs" / "tutorials").glob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        name = f"tutorials/{path.stem}.md"
        files.append(File.generated(config, name, content=as_markdown(notebook, path.name)))
    for name in INCLUDED:
        text = (ROOT / name).read_text(encoding="utf-8")
        if name.endswith(".py"):
            text = f"# {name}\n\n```python\n{text}```\n"
        files.append(File.generated(config, site_name(name), content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links that leave docs/ and links of pages outside it; set how pages are shown."""
    if page.file.src_uri == "which-method.md":
        page.meta["hide"] = ["toc"]
    if page.file.src_uri.startswith(OUTSIDE):
        page.meta["search"] = {"exclude": True}  # pages that explain come first
    if page.file.src_uri == "equations.md":
        markdown = _ROW.sub(_section, re.sub(r"^\| id \|.*\n\|---.*\n", "", markdown, flags=re.MULTILINE))
    parts = _FENCE.split(markdown)
    here = repository_name(page.file.src_uri)
    parts[::2] = [_LINK.sub(lambda found: _rewritten(found, here), text) for text in parts[::2]]
    return "".join(parts)


def _section(row: re.Match[str]) -> str:
    """Return a formula of the table as a section of its own, which search and links can find."""
    name, formula, functions, tests = (cell.strip() for cell in row[1].split(" | "))
    proof = "Tests" if "," in tests else "Test"
    return f"### {name}\n\n> {formula}\n\nComputed by {functions}. {proof}: {tests}.\n"


def _rewritten(match: re.Match[str], here: str) -> str:
    text, link = match[1], match[2]
    target, _, anchor = link.partition("#")
    if not target or "://" in link or link.startswith("mailto:"):
        return match[0]
    name = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
    inside = name.startswith("docs/")
    if inside and here.startswith("docs/"):
        return f"{text}({link.replace('.ipynb', '.md')})"  # the page of a notebook
    if not inside and name not in INCLUDED:
        if not (ROOT / name).exists():
            return match[0]  # mkdocs reports it
        return text[1:-1]  # a file or folder of the repository that is no page: its name only
    place = posixpath.relpath(site_name(name), posixpath.dirname(site_name(here)) or ".")
    return f"{text}({place}{'#' + anchor if anchor else ''})"


def site_name(name: str) -> str:
    """Return the name of a page within the site, from its name within the repository."""
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return f"{OUTSIDE}/{name}" if name.endswith(".md") else f"{OUTSIDE}/{name}.md"


def repository_name(name: str) -> str:
    """Return the name of a page within the repository, from its name within the site."""
    path = PurePosixPath(name)
    if path.parts[0] != OUTSIDE:
        return f"docs/{name}"
    return path.relative_to(OUTSIDE).as_posix().removesuffix(".md" if path.stem.endswith(".py") else "")
