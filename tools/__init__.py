"""Programs a person runs: hcq-trace (what was submitted), hcq-bench (how fast we are). They may import everything."""
