"""Collectives: what several devices do together with memory that each of them has a part of."""
