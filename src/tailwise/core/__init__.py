"""Mathematics of labels and predictions: no files, no training.

- `labels`: label bins and the bin of a label
- `kernels`: kernels over bins, the smoothed label density, label weights
- `distributions`: predictive distributions, which every head returns; `predictive`: what they share
- `pooling`: one distribution for the predictions of several models; `student_t`: functions of the Student-t
- `label_prior`: densities of labels, and tilts towards rare labels or other priors
- `tilt`: predictions under such a tilt, by probabilities and moments of `weighted_cells`
- `scores`, `crps`, `metrics`: quality of predictions, overall and by label region
- `theory`: risk estimators and the generalisation bound
- `lookup`: finding things by name, with the nearest name for a misspelt one
"""
