"""Interfaces of kernel drivers, compared release by release. hcq/system/abi_atlas.py says what a vendor declares."""
