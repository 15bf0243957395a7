"""Networks: a backbone with the parts of a method on top.

- `backbones`: networks that turn inputs into features
- `parts`: a method as a row of parts, and the presets of VIR
- `latents`, `heads`, `losses`, `smoothing`, `perturbations`: the parts
- `offset`: the base prediction around which a model may predict
- `trainable`: what the training loop needs from a model
- `model`: one network (`TailModel`); `vir`: that of the paper as a class (`VIR`)
- `ensembles`, `shared_ensembles`, `targets`: several networks as one model
- `ranks`: what several processes share
"""
