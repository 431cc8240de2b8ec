"""What the author's fixtures do outside the plugin: seeding, breaking, and showing the state.

The author's code runs in a process of its own and gets a value, never a verdict. So it can crash,
print and import whatever it likes, and cannot reach the kit.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio

from purra_tck.fixtures import Hand
from purra_tck.verdict import Untestable

__all__ = ["CALLER", "break_source", "picture", "run_hand", "seed", "shown_state", "state_of"]

HAND_TIMEOUT_S: Final = 20.0
ANSWER_CHARS: Final = 1_000_000
CALLER: Final = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
module, _, name = sys.argv[2].partition(":")
given = json.load(sys.stdin)
answer = getattr(importlib.import_module(module), name)(given)
sys.stdout.write("\\n" + json.dumps(answer))
"""
"""A program: folder and `module:function` as arguments, a JSON value on standard input; the answer
is the last line of its output."""


async def run_hand(hand: Hand, folder: Path, value: Any) -> str:
    """What the function answers (JSON), or what the program prints.

    Raises `Untestable` if it fails: a fixture that does not work is no fault of the plugin's.
    """
    if hand.call:
        argv = [sys.executable, "-c", CALLER, str(folder), hand.call]
    else:
        argv = list(hand.command)
    what = hand.call or " ".join(hand.command)
    try:
        with anyio.fail_after(HAND_TIMEOUT_S):
            done = await anyio.run_process(
                argv, input=json.dumps(value).encode(), cwd=str(folder), check=False
            )
    except (OSError, TimeoutError) as error:
        raise Untestable(f"the fixture {what} failed: {error!r}") from None
    if done.returncode:
        tail = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise Untestable(f"the fixture {what} exited with {done.returncode}: {''.join(tail)}")
    out = done.stdout.decode(errors="replace")[-ANSWER_CHARS:]
    return out.rpartition("\n")[2] if hand.call else out


async def seed(
    hand: Hand, folder: Path, texts: Sequence[Mapping[str, str]], place: Mapping[str, Any]
) -> None:
    """Puts texts where the provider finds them: `[{name, text, session}]`.

    Code of the author's gets `{texts, scratch, config}`. `place`: the last two.
    """
    if hand.file:
        Path(hand.file).parent.mkdir(parents=True, exist_ok=True)
        Path(hand.file).write_text("\n\n".join(each["text"] for each in texts), encoding="utf-8")
    else:
        await run_hand(hand, folder, {"texts": [dict(each) for each in texts], **place})


async def break_source(hand: Hand, folder: Path, place: Mapping[str, Any]) -> None:
    """Makes the source unreadable. A file becomes a folder, which is no file for anybody."""
    if hand.file or hand.folder:
        path = Path(hand.file or hand.folder)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
            path.mkdir()
    else:
        await run_hand(hand, folder, place)


async def state_of(hand: Hand, folder: Path) -> str:
    """A text that is another one when the state is another one."""
    if hand.folder:
        return shown_state(picture(Path(hand.folder)))
    if hand.file:
        path = Path(hand.file)
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "no file"
    return await run_hand(hand, folder, {})


def picture(folder: Path) -> dict[str, str]:
    """Everything below a folder: relative path -> kind, mode and digest of its content."""
    found: dict[str, str] = {}
    for root, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(root, name)
            told = path.lstat()
            what = f"{told.st_mode:o}"
            if path.is_symlink():
                what += f" -> {os.readlink(path)}"
            elif path.is_file():
                what += f" {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"
            found[str(path.relative_to(folder))] = what
    return found


def shown_state(found: Mapping[str, str]) -> str:
    """A picture as one text."""
    return "\n".join(f"{path} {what}" for path, what in sorted(found.items()))
