"""Sharding: tensors whose values are on several devices of one machine, and what these tell each other."""
