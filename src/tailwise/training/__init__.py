"""Training: one loop for every method.

- `config`: how to train, as one frozen configuration
- `batches`: rows as batches on the device; `predict`, in batches
- `steps`: one step of training, as it is or as a CUDA graph
- `loop`: `fit`, and the file from which an interrupted run continues
- `ray_workers`: the loop in the processes of a Ray cluster
"""
