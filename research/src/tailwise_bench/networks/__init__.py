"""Networks for sentence pairs and depth maps."""
