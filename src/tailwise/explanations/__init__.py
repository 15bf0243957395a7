"""Why a model predicts what it predicts, column by column of the table it was given.

- `importance`: which columns matter for the error and for the uncertainty, overall and for rare labels
- `attributions`: `shapley`, what each column adds to the prediction of one row
- `columnwise`: `partial_dependence`, the prediction and its interval along the values of one column; a fitted
  model as a function of whole columns, which all three use

Text, dates and categories count as one column each, however many features they become.
"""

from tailwise.explanations.attributions import Attributions, shapley
from tailwise.explanations.columnwise import partial_dependence
from tailwise.explanations.importance import importance

__all__ = ["Attributions", "importance", "partial_dependence", "shapley"]
