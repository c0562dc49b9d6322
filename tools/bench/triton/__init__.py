"""Our kernels beside Triton's, by the performance model: no GPU is needed.

In       operations, each as a tensor's and as kernels in Triton's language with the launches to try
Out      counted.json: what the best launch of Triton's did; a table of both
Changes  counted.json
Next     kernels.py (Triton's), rows.py (the operations), launches.py (Triton's launches, compiled and counted),
         count.py (both sides); ../../bench_gpu_model.py (the program, which prints the table)
"""
