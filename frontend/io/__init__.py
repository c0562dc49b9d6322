"""State: the tensors of files, whoever wrote them, and files of tensors.

In       a path, names and tensors
Out      `hcq.load`: what is in a file, read when it is asked for; `hcq.save`: a file
Changes  nothing on import
Next     files.py (which format a file has), weights.py (what is given back), one file for each format:
         safetensors.py, gguf.py, torch_file.py, arrays.py

Nothing in a file is ever run. Every count, offset and name is checked against the size of the file before memory is
touched, so that a damaged or hostile file gives one sentence.
"""
