"""VIR without the estimator, in a custom loop on Lightning Fabric."""

import torch
from lightning_fabric import Fabric
from torch.utils.data import DataLoader, TensorDataset

from tailwise import VIR, LabelBins
from tailwise.metrics import by_region
from tailwise.networks.backbones import MLP

torch.manual_seed(0)
x = torch.randn(2000, 6)
y = torch.round(torch.exp(1.0 + 0.8 * x[:, 0] + 0.2 * torch.randn(2000)))
train = TensorDataset(x[:1500], y[:1500])

fabric = Fabric(accelerator="cpu", devices=1)
bins = LabelBins.from_labels(y[:1500])
print(bins.explain())
backbone = MLP(6)
model = VIR(backbone, backbone.feature_dim, bins)
model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), 1e-3))
model.mark_forward_method("loss")
loader = fabric.setup_dataloaders(DataLoader(train, batch_size=64, shuffle=True))

for epoch in range(20):
    model.train()
    for inputs, labels in loader:
        objective, parts = model.loss(inputs, labels)
        optimizer.zero_grad()
        fabric.backward(objective)
        optimizer.step()
    # No end_epoch() here: an epoch ends after as many rows as the training set has.
    if epoch % 5 == 4:
        print(epoch + 1, {name: round(value.item(), 3) for name, value in parts.items()})

model.eval()
with torch.no_grad():
    prediction = model(x[1500:])
print(by_region(prediction, y[1500:], bins).round(3))
