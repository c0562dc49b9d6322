"""Linear algebra: matrices taken apart, and what follows from that. `hcq.torch.linalg` has the functions."""
