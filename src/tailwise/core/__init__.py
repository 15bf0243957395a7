"""Mathematics only, no files and no training.

- `labels`: label bins and the bin of a label
- `kernels`: kernels over bins, the smoothed label density, label weights
- `distributions`: what every head returns and everything after a head reads
- `scores`, `metrics`: how good predictions are, overall and by label region
- `theory`: risk estimators and the generalisation bound
- `lookup`: finding things by name, with the nearest name for a misspelt one
"""
