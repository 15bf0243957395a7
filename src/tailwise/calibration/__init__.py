"""Uncertainty calibrated on held-out rows.

- `scaling`: factors on the predicted spread (`fit_scaling`, `balanced_weights`, `split_variance`)
- `score_table`: limits of intervals from sorted scores
- `widening`: how much wider intervals must be to cover rare labels
- `spreads`: the unit of those limits, from the predicted distribution (`spread`, `sides`)
- `column_groups`: groups of rows by the values of a column (`ColumnGroups`)
- `conformal`: intervals that cover held-out labels (`fit_conformal`, `ConformalIntervals`)
- `interval_texts`: such intervals in words
- `interval_scores`: coverage and width by region, beside a constant interval (`intervals_by_region`)
- `calibrator`: both for one target (`fit_calibrator`, `Calibrator`)
"""
