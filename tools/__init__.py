"""Programs a person runs: hcq-trace (what was submitted), bench.py (how fast we are). They may import everything."""
