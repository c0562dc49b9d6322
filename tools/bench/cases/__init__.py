"""The cases of the comparison with other libraries, each spelled once for every library."""
