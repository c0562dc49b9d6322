"""python -m hcq: what can be opened here.

In       the command line
Out      text, or JSON
Changes  nothing; `devices` opens each device and closes it again
Next     device.py (how a device opens), config.py (the switches listed in the help)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from hcq import device as devices
from hcq.config import SWITCHES
from hcq.errors import HcqError


def main(argv: Sequence[str] | None = None) -> int:
    """The program. Returns its exit status: 0, or 1 when no device can be opened."""
    switches = "\n".join(f"  {name:<15} {what}" for name, what in SWITCHES.items())
    parser = argparse.ArgumentParser(
        prog="hcq",
        description="Hardware command queues from Python. This program says what can be used on this machine.",
        epilog=f"examples:\n  python -m hcq devices\n  python -m hcq devices --json\n\n"
        f"then, in Python:\n  import hcq; dev = hcq.open('CPU')\n\nswitches (environment variables):\n{switches}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="devices")
    devices_verb = verbs.add_parser(
        "devices", help="list devices, open each, and say why one cannot be opened"
    )
    devices_verb.add_argument(
        "--json", action="store_true", help="one JSON list, for another program to read"
    )
    options = parser.parse_args(argv)
    if options.verb is None:
        parser.print_help()
        return 0
    found = [_look(name) for name in devices.known_devices()]
    if options.json:
        import json

        print(json.dumps(found, indent=2))
    else:
        for facts in found:
            print(_line(facts))
    return 0 if any("error" not in facts for facts in found) else 1


def _look(name: str) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = devices.open(name).facts()
    except HcqError as error:
        return {"name": name, "error": str(error)}
    return facts


def _line(facts: dict[str, Any]) -> str:
    if "error" in facts:
        return f"{facts['name']}: cannot be opened. {facts['error']}"
    details = ", ".join(
        f"{name} {value}" for name, value in facts.items() if name not in ("name", "model", "timeline")
    )
    return f"{facts['name']}: {facts['model']}; {details}"


if __name__ == "__main__":
    sys.exit(main())
