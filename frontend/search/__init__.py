"""Search on a device: HCQ_SEARCH. Kernels get the schedules that were fastest there.

Next     searching.py (what a plan asks), bench.py (candidates checked and timed), store.py (the file of results),
         ../../compiler/search/ (the search itself)
"""
