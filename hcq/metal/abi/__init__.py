"""What the Objective-C runtime and Metal declare. No state; nothing of the driver.

messages.py   selectors with the types of what they take and return; functions; enumerations
"""
