"""Programs that a person runs: hcq-trace (what was submitted), bench/ (how fast we are). They may import everything."""
