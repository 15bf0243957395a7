"""Networks: a backbone with the parts of a method on top.

- `backbones`, `images`: networks that turn tables and pictures into features
- `parts`: a method as a row of parts with options; weights and stages among them
- `smoothing`, `heads` (with latents), `losses`: the other parts
- `network`: the one module that is trained; its `tail` follows the backbone for each target
- `together`: several networks as one, for prediction
- `vir`: the presets of the paper's method, and the method as a class (`VIR`)
- `ranks`: what several processes share
"""
