"""The check of the performance model: kernels written anew after published ones, predicted beside what was measured.

In       CUDA C and C for AMD's GPUs; figures with their sources
Out      counted.json, docs/model.md
Changes  those files
Next     ladders.py (what was measured), *.cu and *.hip (the kernels), count.py (runs them on emulated GPUs), page.py
         (predicts and compares)

    python -m tools.bench.model.count      run what is not in counted.json, or --again everything
    python -m tools.bench.model.page       docs/model.md
"""
