"""Inspect: looks at devices that another process has open, and at rings of real GPUs. It changes nothing there.

In       the command line
Out      a page, or JSON
Changes  removes sockets of processes that have ended
Next     docs/inspect.md

    command.py       the verb `python -m hcq inspect`
    client.py        asks another process of this user, over its socket
    text.py          the page

The other side is hcq/observe/inspector.py and hcq/observe/state.py, in the process that is looked at.
"""
