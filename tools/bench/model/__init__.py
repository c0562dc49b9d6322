"""The check of the performance model: kernels written anew after published ones, predicted beside what was measured.

In       CUDA C and C for AMD's GPUs; figures with their sources
Out      counted.json, docs/model.md
Changes  those files
Next     ladders.py (what was measured), cuda_products.py, cuda_streams.py, cuda_rows.py, cuda_matrix.py,
         cuda_attention.py, cuda_scans.py, hip_kernels.py (the kernels), count.py (runs them on emulated GPUs), page.py
         (predicts and compares)

    python -m tools.bench.model.count      run what is not in counted.json, or --again everything
    python -m tools.bench.model.page       docs/model.md
"""
