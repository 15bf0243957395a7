"""The bundled table is the one it says it is."""

import pytest

from tailwise.data import load_abalone


def test_abalone_has_the_published_shape_and_range():
    table = load_abalone()
    assert table.shape == (4177, 9)
    assert not table.isna().any().any()
    assert table["Sex"].value_counts().to_dict() == {"M": 1528, "I": 1342, "F": 1307}
    assert (table["Rings"].min(), table["Rings"].max()) == (1, 29)
    # The published means of the whole weight and of the rings.
    assert table["WholeWeight"].mean() == pytest.approx(0.829, abs=5e-4)
    assert table["Rings"].mean() == pytest.approx(9.934, abs=5e-4)
