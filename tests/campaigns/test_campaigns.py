"""The short form of every campaign, and the runner's own promises."""

from __future__ import annotations

import pytest

from tests.campaigns import runner
from tests.campaigns.campaign import Campaign, campaigns


@pytest.mark.deadline(900)
@pytest.mark.parametrize("campaign", campaigns().values(), ids=lambda campaign: campaign.name)
def test_a_campaign_finds_nothing(campaign: Campaign) -> None:
    tally = runner.run(campaign, 0, count=campaign.short)
    assert tally.failures == []
    assert tally.cases == campaign.short


def sample(bytes: int = 1 << 28, maps: int = 100, descriptors: int = 10, threads: int = 3) -> dict[str, int]:
    return {"bytes": bytes, "maps": maps, "descriptors": descriptors, "threads": threads}


def test_what_grows_at_the_start_only_is_no_leak() -> None:
    assert runner.growth([sample(descriptors=min(n, 20)) for n in range(60)]) == ""


@pytest.mark.parametrize("what", ["bytes", "maps", "descriptors", "threads"])
def test_what_grows_for_ever_is_a_leak(what: str) -> None:
    told = runner.growth([sample(**{what: 1000 + n * (8 << 20)}) for n in range(60)])
    assert told.startswith(what)
