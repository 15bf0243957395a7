"""Mathematics of labels and predictions: no files, no training.

- `labels`: label bins and the bin of a label; `support`: values that labels can have
- `kernels`: kernels over bins, the smoothed label density, label weights
- `distributions`: predictive distributions, which every head returns; `student_t`: what they are made of
- `label_prior`: densities of labels, and tilts towards rare labels or other priors
- `tilt`: predictions under such a tilt; `truncation`: predictions within bounds
- `scores`, `metrics`: quality of predictions, overall and by label region
- `theory`: risk estimators and the generalisation bound
- `lookup`: finding things by name, with the nearest name for a misspelt one; `ranges`: limits of fields
"""
