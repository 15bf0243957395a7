"""The recipe that all contenders share."""

import pytest

from tailwise.benchmark import Recipe
from tailwise.training.loop import TrainConfig


def test_recipe_says_what_is_shared() -> None:
    recipe = Recipe().within(epochs=3, trials=2)
    assert recipe.train.epochs == 3 and recipe.trials == 2
    assert Recipe().within() == Recipe()
    assert recipe.describe()["monitor"] == recipe.criterion == "balanced_mae"
    with pytest.raises(ValueError, match="trials must be at least 1"):
        Recipe(trials=0)
    with pytest.raises(
        ValueError, match=r"starts at lr = 0.001, but `train` has 0.1: give both the same value"
    ):
        Recipe(train=TrainConfig(lr=0.1))
