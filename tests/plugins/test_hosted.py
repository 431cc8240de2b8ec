"""The plugins in processes of their own, under the real host."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from purra.manifest.plugin import load_plugin
from purra_bridge.ports.channel import Request
from purra_bridge.wire.errors import WireError
from purra_hosts.launch import Launch
from purra_hosts.process.route import Route
from tests.hosts.process.rig import hosting
from tests.plugins.offline.talking import TOOLS, calls_of, quotes_in, text_of

PLUGINS = Path(__file__).parents[2] / "plugins"


def _launch(name: str, folder: Path | None = None, **config: Any) -> Launch:
    """The plugin as a host manifest would start it that grants writing in `folder`."""
    manifest = load_plugin(PLUGINS / name / f"purra_plugin_{name}" / "purra-plugin.toml")
    return Launch(
        plugin=manifest.id,
        version=manifest.version,
        folder=manifest.path.parent,
        manifest_path=manifest.path,
        manifest_sha256=manifest.sha256,
        offers=tuple((offer.kind, offer.name) for offer in manifest.offers),
        python=sys.executable,
        entry=manifest.runs.entry,
        config=config,
        grants={"fs.write": (str(folder),)} if folder else {},
        sys_path=(str(PLUGINS / name),),
    )


async def _items(route: Route, name: str, messages: list[Any]) -> list[Any]:
    body = {"messages": messages, "tools": TOOLS, "max_tokens": 4096, "params": {}}
    return [item async for item in route.stream(Request(name, "generate", body))]


def test_a_model_and_its_tools_in_two_processes_quote_a_folder(tmp_path: Path) -> None:
    """The demo's heart without a kernel: searches, reads, an answer with exact quotes."""
    (tmp_path / "wire.md").write_text("# Wire\r\n\r\nA caller sends CANCEL to stop a tool é\r\n")
    messages: list[Any] = [{"role": "user", "content": "How does a caller cancel a tool?"}]

    async def main() -> str:
        async with hosting() as watched:
            model = watched.host.add(_launch("offline"))
            files = watched.host.add(_launch("files", tmp_path, root=str(tmp_path)))
            while True:
                items = await _items(model, "extractive", messages)
                if not (calls := calls_of(items)):
                    return text_of(items)
                messages.append({"role": "assistant", "content": "", "calls": calls})
                for call in calls:
                    asked = {"arguments": json.loads(call["arguments"])}
                    result = await files.call(Request(call["name"], "call", asked))
                    content = json.dumps(result["value"], ensure_ascii=False)
                    messages.append({"role": "tool", "content": content, "call_id": call["id"]})

    answer = anyio.run(main)
    assert quotes_in(answer) == [("wire.md", 3, "A caller sends CANCEL to stop a tool é")]


def test_memory_files_come_from_their_own_process(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Be brief.")
    request = {"run": "r", "session": "", "prompt": "?"}

    async def main() -> Any:
        async with hosting() as watched:
            route = watched.host.add(
                _launch("agentsmd", tmp_path, files=[str(tmp_path / "AGENTS.md")])
            )
            claim = await route.call(Request("memory", "demand", request))
            asked = {**request, "budget": claim["minimum"]}
            return await route.call(Request("memory", "provide", asked))

    (block,) = anyio.run(main)["blocks"]
    assert block["content"] == "Be brief."
    assert block["digest"] == "sha256:" + hashlib.sha256(b"Be brief.").hexdigest()


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ({"exit": 3}, "crashed"),
        ({"signal": 9}, "crashed"),
        ({"garbage": 64}, "protocol_violation"),
        ({"raise": {"exception": "KeyError"}}, "internal"),
    ],
)
def test_every_way_a_scripted_model_fails_is_one_typed_error(
    action: dict[str, Any], code: str
) -> None:
    """OBS-06, MOD-28: what came before is delivered, then exactly one error."""
    steps = [{"emit": [{"content": "before"}, {"print": "noise"}, action, {"finish": "stop"}]}]

    async def main() -> tuple[list[Any], WireError]:
        async with hosting() as watched:
            route = watched.host.add(_launch("scripted", steps=steps))
            seen: list[Any] = []
            body = {"messages": [], "tools": [], "max_tokens": 9, "params": {}}
            with pytest.raises(WireError) as caught:
                async for item in route.stream(Request("script", "generate", body)):
                    seen.append(item)
            return seen, caught.value

    seen, error = anyio.run(main)
    assert error.code == code
    assert [item["t"] for item in seen] in ([], ["content"])


def test_a_wrong_root_is_the_reason_that_the_start_fails(tmp_path: Path) -> None:
    async def main() -> WireError:
        async with hosting() as watched:
            route = watched.host.add(_launch("files", root=str(tmp_path / "none")))
            with pytest.raises(WireError) as caught:
                await route.start()
            return caught.value

    error = anyio.run(main)
    assert str(tmp_path / "none") in error.message


def test_a_write_is_in_the_file_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    async def main() -> Any:
        async with hosting() as watched:
            route = watched.host.add(_launch("files", tmp_path, root=str(tmp_path)))
            asked = {"arguments": {"path": "a/b.md", "content": "é\n", "parents": True}}
            request = Request("fs.write", "call", asked, exclusive=True)
            return (await route.call(request))["value"]

    assert anyio.run(main) == {"path": "a/b.md", "bytes": 3, "created": True}
    assert os.listdir(tmp_path / "a") == ["b.md"]
