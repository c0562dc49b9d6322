"""Rules on the packets themselves: what the hardware cannot read, and what a queue cannot do.

In       packets as decoded, and their effects
Out      packet-unknown, packet-length, bits-unclaimed, queue-ability
Next     effects.py (Model.malformed), docs/rules/
"""

from __future__ import annotations

from collections.abc import Iterator

from hcq.rules.effects import ABILITY, Effect, Step
from hcq.rules.rule import Violation, check, rule
from hcq.rules.submission_check import SubmissionCheck

PACKET_UNKNOWN = rule(
    "packet-unknown",
    "Every packet has an opcode that the device knows.",
    "Look at the words before it: a wrong length there makes the device read arguments as a packet.",
)
PACKET_LENGTH = rule(
    "packet-length",
    "Every packet has the length that its opcode and its contents require, and is completely inside the submission.",
    "Make the packet with its layout class and submit all of its words.",
)
BITS_UNCLAIMED = rule(
    "bits-unclaimed",
    "No packet sets bits that its layout does not name.",
    "Clear them, or give the field a name in the layout if the hardware has it.",
)
QUEUE_ABILITY = rule(
    "queue-ability",
    "A queue is only given commands that its engine can do.",
    "Submit the command to a queue of the device that has the ability.",
)

MALFORMED = {found.id: found for found in (PACKET_UNKNOWN, PACKET_LENGTH)}


def packet(submission: SubmissionCheck, step: Step) -> Iterator[Violation]:
    """What is wrong with the words of one packet."""
    wrong = submission.model.malformed(step.packet)
    if wrong is not None:
        yield Violation(MALFORMED[wrong[0]], wrong[1])
    elif step.packet.unclaimed:
        bits = ", ".join(f"{extra:#x} of word {index}" for index, extra in step.packet.unclaimed.items())
        yield Violation(BITS_UNCLAIMED, f"it sets {bits}, which no field claims")


@check(*ABILITY)
def ability(submission: SubmissionCheck, effect: Effect) -> Iterator[Violation]:
    """Check: the queue can do what its packets ask for."""
    able = submission.model.abilities.get(submission.queue)
    if able is not None and ABILITY[type(effect)] not in able:
        yield Violation(
            QUEUE_ABILITY,
            f"queue {submission.queue!r} cannot {ABILITY[type(effect)]}; it can {', '.join(sorted(able))}",
        )
