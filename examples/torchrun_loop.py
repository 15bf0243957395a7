"""VIR in a custom loop on several processes: torchrun --nproc-per-node 2 examples/torchrun_loop.py

Each process has rows of its own. Label bins, latent statistics and metrics are those of all rows. Without
torchrun there is one process.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tailwise import VIR
from tailwise.metrics import get_metric
from tailwise.networks.backbones import MLP
from tailwise.networks.ranks import all_predictions, rank_and_ranks, shared_bins

if dist.is_torchelastic_launched():
    dist.init_process_group("gloo")
rank, ranks = rank_and_ranks()
torch.manual_seed(0)
x = torch.randn(2400, 6)
y = torch.round(torch.exp(1.0 + 0.8 * x[:, 0] + 0.2 * torch.randn(2400)))
x, y = x[rank::ranks], y[rank::ranks]  # what this process reads
train, test = slice(0, 800), slice(800, None)

bins = shared_bins(y[train])  # the histogram of the labels of all processes
backbone = MLP(6)
model = VIR(backbone, backbone.feature_dim, bins)
predict, model.forward = model.forward, model.loss  # what DistributedDataParallel calls is the loss
step = DistributedDataParallel(model) if ranks > 1 else model
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

for epoch in range(20):
    model.train()
    model.begin_epoch(epoch / 20)
    for rows in torch.randperm(800).split(100):
        loss, parts = step(x[train][rows], y[train][rows])
        optimizer.zero_grad()
        loss.backward()  # gradients are averaged over the processes
        optimizer.step()
    model.end_epoch()  # adds the latent sums of all processes

model.eval()
with torch.no_grad():
    prediction, labels = all_predictions(predict(x[test]), y[test])
mae = get_metric("balanced_mae")(prediction, labels, bins)
counted = int(model.tails[0].smoother.stats.count.sum())
if rank == 0:
    print(bins.explain())
    print(f"{ranks} processes: {bins.counts.sum()} labels in {len(bins)} bins, {counted} latent rows")
    print(f"balanced MAE of {len(labels)} test rows: {mae:.3f}")
if ranks > 1:
    dist.destroy_process_group()
