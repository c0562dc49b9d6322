"""Late groups: all methods that are imported late, as one class for type checkers.

In       the groups that table.py names
Out      `Late` of late.py; type checkers see a class that has every group's methods
Next     late.py (what a program runs), tools/method_stubs.py (who writes the stub)
"""

from hcq.frontend.ops.late import Late as Late
