"""Data of a benchmark: data sets, suites of them, and the recipe that a suite is run with.

Others may use `problems` (`Problem`, `Source`), `recipe.Recipe` and `suites`.
"""
