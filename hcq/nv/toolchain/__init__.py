"""NVIDIA's compilers as libraries: nvrtc (CUDA C to PTX and cubin) and nvJitLink (PTX to cubin).

    library.py      finds and opens them: pip wheels first, then the system
    nvrtc.py        compile_cuda
    nvjitlink.py    link_ptx

Neither needs a GPU, a driver or the CUDA toolkit: `pip install hcq[nv]`.
"""
