"""The script meets the request it expects, in order, and says what it missed."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from purra_plugin_scripted.playing import Player, UnexpectedError
from purra_plugin_scripted.script import parse_script

USER = {"role": "user", "content": "what about cancel?"}
ASKING = {
    "role": "assistant",
    "content": "",
    "calls": [{"id": "c", "name": "fs.grep", "arguments": '{"pattern": "cancel"}'}],
}
RESULT = {"role": "tool", "content": "docs/x.md:3", "call_id": "c"}


def _request(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": list(messages), "tools": [], "max_tokens": 100, "params": {}, **more}


def _player(*steps: dict[str, Any], match: str = "order", record: str = "") -> Player:
    return Player(parse_script({"steps": list(steps), "match": match}), record)


def test_a_parameter_that_no_step_expects_is_refused() -> None:
    """MOD-014: nothing is left out in silence, and the step is still there."""
    player = _player({"content": "a"}, {"content": "b", "expect": {"params": {"x": 1}}})
    with pytest.raises(UnexpectedError, match="takes no parameters: x") as caught:
        player.take(_request(USER, params={"x": 1}))
    assert caught.value.code == "unimplemented"
    assert player.take(_request(USER))[0] == 1
    assert player.take(_request(USER, params={"x": 1}))[0] == 2


@pytest.mark.parametrize(
    ("expect", "holds"),
    [
        ({"messages": 3}, True),
        ({"messages": 2}, False),
        ({"roles": ["user", "assistant", "tool"]}, True),
        ({"roles": ["user"]}, False),
        ({"last_role": "tool"}, True),
        ({"last_role": "user"}, False),
        ({"last_equals": "docs/x.md:3"}, True),
        ({"last_equals": "docs/x.md"}, False),
        ({"last_contains": ["x.md", ":3"]}, True),
        ({"last_contains": ["x.md", ":4"]}, False),
        ({"contains": ['"pattern"', "what"]}, True),
        ({"contains": "absent"}, False),
        ({"lacks": "absent"}, True),
        ({"lacks": ["absent", "pattern"]}, False),
        ({"tools": ["b", "a"]}, True),
        ({"tools": ["a"]}, False),
        ({"tools_include": ["a"]}, True),
        ({"tools_include": ["c"]}, False),
        ({"max_tokens": 100}, True),
        ({"max_tokens": 99}, False),
        ({"params": {}}, True),
        ({"params": {"temperature": 1}}, False),
    ],
)
def test_expectations(expect: dict[str, Any], holds: bool) -> None:
    """Each one can hold and can fail; a failure names it and leaves the step unused."""
    player = _player({"name": "look", "expect": expect})
    request = _request(USER, ASKING, RESULT, tools=[{"name": "a"}, {"name": "b"}])
    if holds:
        assert player.take(request)[0] == 1
        return
    for _ in range(2):
        with pytest.raises(UnexpectedError, match=next(iter(expect))) as caught:
            player.take(request)
        assert caught.value.detail["step"] == 1
        assert "look" in caught.value.message
    assert player.unplayed() == [1]


def test_in_order_each_step_is_played_once_and_no_more() -> None:
    """TST-03: a request that no step expects is refused."""
    player = _player({"content": "1"}, {"content": "2"})
    assert [player.take(_request(USER))[0] for _ in range(2)] == [1, 2]
    with pytest.raises(UnexpectedError, match="2 steps"):
        player.take(_request(USER))
    player.finish()


def test_by_round_the_conversation_chooses() -> None:
    """The same request gets the same step, in another process and at the same time too."""
    player = _player({"content": "1"}, {"content": "2"}, match="round")
    assert player.take(_request(USER, ASKING, RESULT))[0] == 2
    assert player.unplayed() == [1]
    assert [player.take(_request(USER))[0] for _ in range(2)] == [1, 1]
    player.finish()


def test_steps_left_over_are_an_error() -> None:
    """TST-03: a script must be played to its end."""
    player = _player({"content": "1"}, {"content": "2"}, {"content": "3"})
    player.take(_request(USER))
    with pytest.raises(UnexpectedError, match="2, 3") as caught:
        player.finish()
    assert caught.value.detail == {"unplayed": [2, 3]}


def test_concurrent_requests_never_share_a_step() -> None:
    player = _player(*({"content": str(number)} for number in range(32)))
    taken: list[int] = []
    threads = [
        threading.Thread(target=lambda: taken.append(player.take(_request(USER))[0]))
        for _ in range(32)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(1, 33))


def test_the_record_shows_what_the_model_saw(tmp_path: Path) -> None:
    """TST-03: each request, the step it got, and what was left."""
    path = tmp_path / "record.jsonl"
    player = _player({"name": "a"}, {"name": "b"}, record=str(path))
    player.take(_request(USER))
    with pytest.raises(UnexpectedError):
        player.finish()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [
        {"step": 1, "name": "a", "request": _request(USER)},
        {"end": True, "unplayed": [2]},
    ]
