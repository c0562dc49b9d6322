"""The doctor: what is wrong with a device, and the command that mends it.

In       nothing; the name of a device, words of emulated ones
Out      examine() -> Examination; as_text and as_json print it; list_devices() is the short form
Changes  opens each device for itself, works on it a little, and closes it
Next     examine.py (start here), docs/doctor.md (every rung and its fixes), hcq/__main__.py (the program)
"""

from __future__ import annotations
