"""mkl: a library of the host that is not called here.

In       nothing
Out      is_available() is False
Changes  nothing
Next     __init__.py
"""

enabled = False


def is_available() -> bool:
    """False: kernels are compiled here.

    >>> import hcq.backends.mkl
    >>> hcq.backends.mkl.is_available()
    False
    """
    return False
