"""Linear algebra: matrices taken apart, and what follows from that. `hcq.linalg` has the functions."""
