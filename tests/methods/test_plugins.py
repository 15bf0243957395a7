"""A method of one's own, in a file that is not part of the package, beside the others."""

from pathlib import Path

import pytest

from tailwise.methods import available_methods, load_plugin, plugins
from tests.plugin_samples import forgotten, write_plugin


def test_it_is_run_once(tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path)
    with forgotten():
        load_plugin(plugin)
        load_plugin(plugin)  # registering a name twice would be an error
        assert available_methods().count("huber") == 1
        assert plugins.loaded_plugins() == (str(plugin),)
    assert "huber" not in available_methods()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("gone.py", None, "gone.py does not exist"),
        ("notes.txt", "hello", "notes.txt is not a Python file"),
        ("broken.py", "import nothing_of_that_name", "broken.py cannot be used as a plugin: ModuleNotFound"),
        ("ends.py", "raise SystemExit(3)", "ends.py cannot be used as a plugin: SystemExit: 3"),
    ],
)
def test_mistakes_name_the_file(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with forgotten():
        with pytest.raises(ValueError, match=message):
            load_plugin(path)
        assert plugins.loaded_plugins() == ()
