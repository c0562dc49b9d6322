"""Fourier transforms of tensors: sums of products with small matrices, and angles between them.

In       planes: real tensors whose middle axis holds real and imaginary parts
Out      the transformed planes, lazy
Changes  tables.py keeps matrices and angles in device memory
Next     planes.py (the transform), fft.py (hcq.torch.fft), short_time.py (stft),
         windows.py (hcq.torch.signal.windows)
"""
