"""python -m tests.campaigns: run campaigns against this checkout.

In       names of campaigns, a seed, and how many cases or for how long
Out      a table of what came out, as in docs/reliability.md; exit code 1 when anything failed
Changes  nothing that lasts: workers have a folder of their own
Next     campaign.py (what a campaign is), runner.py (how it is run)
"""

from __future__ import annotations

import argparse
import concurrent.futures
import sys
import time

from tests.campaigns import runner
from tests.campaigns.campaign import Campaign, campaigns

EXAMPLES = """examples:
  python -m tests.campaigns                              every campaign, short: what the test suite runs
  python -m tests.campaigns movement --seconds 600       random movement programs for ten minutes
  python -m tests.campaigns movement --seed 3 --case 17  one case again, as the line of a failure says
  python -m tests.campaigns --seconds 3600 --jobs 2      all campaigns in an hour: make soak
"""


def main(words: list[str] | None = None) -> int:
    """Run what the command line asks for; 0 when nothing failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns",
        description="Attack hcq: random programs, faults, forks, damaged files. A failure is a line that repeats it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="CAMPAIGN", help="default: all; --list names them")
    parser.add_argument("--list", action="store_true", help="the campaigns and what they inject")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers (default 0)")
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("--case", type=int, metavar="N", help="run case N alone")
    amount.add_argument("--cases", type=int, metavar="N", help="run the first N cases")
    amount.add_argument("--seconds", type=float, metavar="S", help="share S seconds among the campaigns")
    parser.add_argument("--jobs", type=int, default=1, help="campaigns that run at a time (default 1)")
    options = parser.parse_args(words)
    known = campaigns()
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"no campaign {unknown[0]!r}. Known: {', '.join(known)}")
    chosen = [known[name] for name in options.names or known]
    if options.list:
        for campaign in chosen:
            print(f"{campaign.name:20} {campaign.injects}")
        return 0
    return _run(chosen, options)


def _run(chosen: list[Campaign], options: argparse.Namespace) -> int:
    start = time.monotonic()

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def one(campaign: Campaign) -> tuple[runner.Tally, str]:
        command = f"python -m tests.campaigns {campaign.name} --seed {options.seed}"
        if options.case is not None:
            tally = runner.run(campaign, options.seed, first=options.case, count=1, tell=tell)
        elif options.seconds is not None:
            share = options.seconds * options.jobs / len(chosen)
            tally = runner.run(campaign, options.seed, seconds=share, tell=tell)
        else:
            count = campaign.short if options.cases is None else options.cases
            tally = runner.run(campaign, options.seed, count=count, tell=tell)
        tell(
            f"{time.monotonic() - start:7.0f} s  {campaign.name}: {tally.cases:,} cases, {len(tally.failures)} failed"
        )
        return tally, f"{command} --cases {tally.cases}"

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        tallies = list(pool.map(one, chosen))
    print(runner.HEADER)
    for tally, command in tallies:
        print(tally.row(command))
    return 1 if any(tally.failures for tally, _ in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
