"""Uncertainty calibrated on held-out rows.

- `calibration`: calibrated predictions of one target (`calibrate`, `Calibration`, `Predicted`)
- `scaling`: factors on the predicted spread (`fit_scaling`, `balanced_weights`, `standard_deviation`)
- `intervals`: intervals that cover held-out labels (`ConformalIntervals`, `OwnIntervals`)
- `interval_scores`: coverage and width by region and by the values of a column (`ColumnGroups`)
"""
