"""What `tailwise doctor` finds."""

import re
import tomllib
from pathlib import Path

import pytest

from tailwise.serving import installation
from tailwise.serving.installation import EXTRAS, as_text, require, version_of


def test_the_extras_are_those_of_the_package() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    named = tomllib.loads(text)["project"]["optional-dependencies"]
    del named["dev"], named["docs" if "docs" in named else "serve"]
    shown = {extra: [re.split(r"[>\[]", entry)[0] for entry in entries] for extra, entries in named.items()}
    assert {extra: list(EXTRAS[extra]) for extra in shown} == shown
    assert EXTRAS["serve"] == ("fastapi", "uvicorn", "prometheus-client")


def test_missing_packages_are_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert version_of("no-such-package") is None and version_of("numpy") is not None
    monkeypatch.setitem(EXTRAS, "export", ("numpy", "no-such-package"))
    monkeypatch.setitem(EXTRAS, "big", ("no-such-package",))
    lines = as_text(installation.installation()).splitlines()
    assert any(
        line.endswith("; no-such-package missing: pip install 'tailwise[export]'") and "numpy 2" in line
        for line in lines
    )
    assert f"  {'big':<12} no-such-package missing: pip install 'tailwise[big]'" in lines
    assert lines[0].startswith("tailwise ") and any(line.startswith("threads ") for line in lines)
    with pytest.raises(
        ImportError, match=r"no_such_module is not installed: pip install 'tailwise\[serve\]'"
    ):
        require("serve", "json", "no_such_module")
