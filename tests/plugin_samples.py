"""A method of one's own in a file that is not part of the package."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from tailwise.methods import plugins, registry
from tailwise.networks.heads import HEADS
from tailwise.networks.losses import LOSSES

CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"


def write_plugin(folder: Path) -> Path:
    """Write the method of CONTRIBUTING.md, ``huber``, as a file."""
    text = CONTRIBUTING.read_text(encoding="utf-8")
    path = folder / "mine.py"
    path.write_text(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[0], encoding="utf-8")
    return path


@contextmanager
def forgotten() -> Iterator[None]:
    """Forget what plugins register in the block when it ends, as a new process does not know it."""
    with (
        mock.patch.dict(HEADS),
        mock.patch.dict(LOSSES),
        mock.patch.dict(registry._REGISTRY),
        mock.patch.dict(plugins._loaded, clear=True),
    ):
        yield
