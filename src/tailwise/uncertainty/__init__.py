"""Uncertainty calibrated on held-out rows.

- `scaling`: factors on the predicted spread (`fit_scaling`, `balanced_weights`, `split_variance`)
- `conformal`: intervals that cover held-out labels (`fit_conformal`, `ConformalIntervals`)
- `calibrator`: both for one target (`fit_calibrator`, `Calibrator`)
"""
