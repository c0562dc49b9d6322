"""The doctor: what is wrong with a device, and the command that mends it.

In       nothing; the name of a device, words of emulated ones
Out      examine.examine() -> Examination, printed by report.as_text and report.as_json; devices.py is the short form
Changes  opens each device for itself, works on it a little, and closes it
Next     examine.py (start here), docs/doctor.md (every check and its fixes), hcq/__main__.py (the program)
"""
