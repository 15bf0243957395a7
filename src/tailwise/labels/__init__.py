"""Labels: their bins, density and weights, the values they can have, and label priors.

- `bins`: label bins and the bin of a label; `support`: values that labels can have
- `kernels`: kernels over bins, the smoothed label density, label weights
- `prior`: densities of labels, and tilts towards rare labels or other priors
- `theory`: risk estimators and the generalisation bound
"""
