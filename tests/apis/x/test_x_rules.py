"""Rules at X: what a config wants is there, what somebody else has is left alone, what X refuses is told."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from fetchers.catalog import shared_http
from fetchers.sdk import Fatal
from fetchers.sdk.testing import FakeClock, FakeContext
from service.simulators.x import XSimulator
from service.simulators.x_settings import RULES_PATH, STREAM_PATH
from service.simulators.x_stream import Ending
from tests.apis.x.hearing import connector_for, hearing, simulated


def connections(x: XSimulator) -> int:
    """Those that were ever asked for."""
    return sum(request.path == STREAM_PATH for request in x.requests)


def posted(x: XSimulator) -> int:
    """Changes of rules that were asked for."""
    return sum(request.method == "POST" for request in x.requests if request.path == RULES_PATH)


async def test_another_config_changes_only_what_is_other_in_it() -> None:
    """The rule that stays is never away, and those of others are not touched."""
    async with simulated() as (x, clock):
        foreign = {x.rules.add("zebra", "of a person"), x.rules.add("gnu")}
        async with hearing(x, clock, x_keywords="kafka,san jose", x_user_ids="12"):
            await x.wait_for_connections(1)
        assert x.rules.values == {
            "zebra": "of a person",
            "gnu": None,
            "kafka": "headrace:cats:1",
            "san jose": "headrace:cats:2",
            "from:12": "headrace:cats:user-12",
        }
        await x.wait_for_no_connection()
        async with hearing(x, clock, x_keywords="olympics,kafka"):
            await x.wait_for_connections(2)
        assert x.rules.values == {
            "zebra": "of a person",
            "gnu": None,
            "kafka": "headrace:cats:1",
            "olympics": "headrace:cats:1",
        }
        changes = posted(x)
        await x.wait_for_no_connection()
        async with hearing(x, clock, x_keywords="kafka,olympics"):
            await x.wait_for_connections(3)
        assert posted(x) == changes
        assert len(foreign) == 2


async def test_posts_that_only_rules_of_others_bring_are_passed_over() -> None:
    """They share the app's stream; a rule of theirs that is equal to ours serves us as well."""
    async with simulated() as (x, clock):
        x.rules.add("zebra", "of a person")
        x.rules.add("kafka", "of a person")
        async with hearing(x, clock, x_keywords="kafka,gnu") as heard:
            await x.wait_for_connections(1)
            for text in ("a zebra", "kafka", "a gnu", "zebra and gnu"):
                x.post(text)
            await heard.wait_for(3)
            assert heard.texts == ["kafka", "a gnu", "zebra and gnu"]
            assert heard.passed_over == {"foreign": 1}
        assert x.rules.values["kafka"] == "of a person"


async def test_a_changed_config_changes_the_rules_under_the_connection_that_stands() -> None:
    """Posts of the new rule come over it, those of the old one no longer do, and nobody has connected again."""
    async with simulated() as (x, clock), hearing(x, clock, x_keywords="kafka,gnu") as heard:
        await x.wait_for_connections(1)
        changed = connector_for(x, x_keywords="kafka,zebra", x_user_ids="12").config
        assert heard.connector.takes_over({"x.keywords", "x.user.ids", "x.rule.cats"})
        assert not heard.connector.takes_over({"x.keywords", "x.recovery"})
        await heard.connector.apply_config(changed)
        assert set(x.rules.values) == {"kafka", "zebra", "from:12"}
        for text in ("kafka", "a gnu", "a zebra"):
            x.post(text)
        await heard.wait_for(2)
        assert heard.texts == ["kafka", "a zebra"]
        assert connections(x) == 1
        x.end(Ending.CLEAN)
        await x.wait_for_connections(2)
        assert set(x.rules.values) == {"kafka", "zebra", "from:12"}, "the connection after it goes by the new config"


async def test_a_changed_rule_that_x_refuses_is_told_in_its_words_and_nothing_is_taken_away() -> None:
    """The worker makes the task FAILED of it; the rules that posts come by stay."""
    async with simulated() as (x, clock), hearing(x, clock, x_keywords="kafka") as heard:
        await x.wait_for_connections(1)
        changed = connector_for(x, more={"x.keywords": "", "x.rule.bad": "-cat"}).config
        with pytest.raises(Fatal, match=r"refuses the rule '-cat'.*at least one positive"):
            await heard.connector.apply_config(changed)
        assert set(x.rules.values) == {"kafka"}
        assert connections(x) == 1


async def test_of_two_connectors_with_one_credential_the_second_waits_and_says_for_whom() -> None:
    """It asks nothing of X, not even for rules, until the first has ended: there is no fight for the connection."""
    async with simulated() as (x, clock), AsyncExitStack() as first:
        clock.is_automatic = False
        await first.enter_async_context(hearing(x, clock, name="cats", x_keywords="kafka"))
        await x.wait_for_connections(1)
        async with hearing(x, clock, name="dogs", x_keywords="gnu") as second:
            asked = len(x.requests)
            for again in range(1, 4):
                await second.wait(lambda: len(second.waits) >= again)  # noqa: B023 - awaited here
                await clock.wait_for_sleeper()
                await clock.advance(60)
            error, _ = second.context.retries[-1]
            assert "connector cats of this worker has the one connection" in str(error)
            assert (len(x.requests), connections(x), set(x.rules.values)) == (asked, 1, {"kafka"})
            await first.aclose()
            await clock.advance(400)
            await x.wait_for_connections(2)
            assert set(x.rules.values) == {"kafka", "gnu"}


async def test_a_rule_that_x_refuses_fails_the_task_with_its_reason() -> None:
    """And the check of the config shows it by its key, without a change at X."""
    rules = {"x.rule.bad": "-cat", "x.rule.good": "cat has:images"}
    async with simulated() as (x, clock):
        async with shared_http() as http:
            findings = await connector_for(x, more=rules).check(FakeContext(http=http, clock=clock))
        assert [finding.key for finding in findings] == ["x.rule.bad"]
        assert "at least one positive" in findings[0].message
        assert x.rules.values == {}
        async with hearing(x, clock, more=rules) as heard:
            assert isinstance(await heard.failure(), Fatal)
            assert "'-cat'" in str(heard.error)
            assert "at least one positive" in str(heard.error)


async def test_where_there_is_no_room_for_more_rules_what_is_no_longer_wanted_goes_first() -> None:
    """Else a config could not be changed once the account's limit is reached; beyond it the task fails."""
    async with simulated(rules_max=2) as (x, clock):
        async with hearing(x, clock, x_keywords="one,two"):
            await x.wait_for_connections(1)
        await x.wait_for_no_connection()
        async with hearing(x, clock, x_keywords="two,three"):
            await x.wait_for_connections(2)
        assert set(x.rules.values) == {"two", "three"}
        await x.wait_for_no_connection()
        async with hearing(x, clock, x_keywords="two,three,four") as heard:
            assert "RulesCapExceeded" in str(await heard.failure())


async def test_many_rules_are_listed_by_pages_and_added_by_parts() -> None:
    """1,100 of others, 150 of ours."""
    async with simulated(rules_max=5_000) as (x, clock):
        for number in range(1_100):
            x.rules.add(f"word{number}")
        async with hearing(x, clock, x_keywords=",".join(f"term{number}" for number in range(150))):
            await x.wait_for_connections(1)
        assert len(x.rules.values) == 1_250
        assert posted(x) == 2


@pytest.mark.parametrize("token", ["", "odd-wrong-token"])
async def test_the_check_says_what_is_wrong_with_the_credentials(token: str) -> None:
    """In X's words, after one request."""
    async with simulated() as (x, _), shared_http() as http:
        connector = connector_for(x, x_bearer_token=token, x_consumer_key="odd-key", x_consumer_secret="odd-secret")
        with pytest.raises(Fatal, match="Unable to verify your credentials" if not token else "Unauthorized"):
            await connector.check(FakeContext(http=http, clock=FakeClock()))
        assert len(x.requests) == 1
