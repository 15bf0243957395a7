"""Fixtures of the package's tests that these tests share."""

from tests.conftest import data_root, torchvision  # noqa: F401
