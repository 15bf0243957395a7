"""Calibrated uncertainty from held-out rows.

- `scaling`: factors that correct the predicted spread
- `conformal`: intervals that cover held-out labels
- `calibrator`: both for one target
"""
