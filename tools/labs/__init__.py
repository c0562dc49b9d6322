"""Labs: six exercises for people who learn how a GPU is driven, each with a checker. No GPU is needed.

In       the number of a lab, and a file that somebody works on
Out      "right", or what is still wrong
Changes  `start` writes the file of a lab into a folder
Next     command.py (python -m hcq.tools.labs), labs.py (what each lab checks), exercises/ (the files to begin with),
         docs/labs.md (for teachers)
"""
