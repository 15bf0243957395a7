"""Self-contained HTML from templates: one file, no network, light and dark, for screen and paper."""

from __future__ import annotations

import base64
import hashlib
import math
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tailwise._version import __version__
from tailwise.report.formatting import number


def render(template: str, *, script: str | None = None, **values: Any) -> str:
    """Return a template filled with values; a missing value is an error.

    The page may run the `script` of the templates and nothing else: its policy names the hash of the script.
    """
    environment = Environment(
        loader=PackageLoader("tailwise.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = lambda value, n=3: "–" if math.isnan(value) else number(value, n)
    environment.filters["signed"] = lambda value: "+" * bool(value > 0) + number(value)
    environment.filters["percent"] = lambda value: "–" if math.isnan(value) else f"{100 * value:.1f}%"
    code = "" if script is None else environment.get_template(script).render()
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    allowed = f"'sha256-{digest}'" if code else "'none'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {allowed}"
    return environment.get_template(template).render(
        version=__version__, code=Markup(code), policy=policy, **values
    )
