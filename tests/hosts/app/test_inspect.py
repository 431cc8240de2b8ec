"""`purra inspect`: the page in a real browser, and the door in front of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PURRA = (sys.executable, "-m", "purra_hosts.app")
HOSTILE = "<img src=x onerror=document.title='owned'> does cancel work?"


def purra(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PURRA, *arguments], capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address of a page over a store with one run, and the run's id."""
    folder = tmp_path_factory.mktemp("inspect")
    docs = folder / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("Cancel works by <b>one</b> frame.\n")
    manifest = str(ROOT / "manifests" / "quickstart.toml")
    options = ["--state", str(folder / "state"), "--param", f"root={docs}"]
    done = purra("run", manifest, HOSTILE, *options, "--json")
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout.splitlines()[-1])["run"]
    server = subprocess.Popen(
        [*PURRA, "inspect", "-m", manifest, *options], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    address = server.stdout.readline().strip()
    try:
        yield address, run
    finally:
        server.terminate()
        assert server.wait(20) == 0
        server.stdout.close()


def get(address: str, host: str = "") -> tuple[int, bytes]:
    request = urllib.request.Request(address, headers={"Host": host} if host else {})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_nothing_is_told_without_the_token(page: tuple[str, str]) -> None:
    """Issue D 7: loopback, a token, and no name but the loopback's (no rebinding)."""
    address, _ = page
    base, _, token = address.partition("/?token=")
    assert base.startswith("http://127.0.0.1:")
    wrong = token[:-1] + ("1" if token.endswith("0") else "0")
    for path in ("/", "/api/runs", "/api/runs?token=", f"/api/runs?token={wrong}"):
        status, body = get(base + path)
        assert status == 403, path
        assert b"cancel" not in body
    assert get(f"{base}/api/runs?token={token}", host="evil.example:80")[0] == 403
    assert get(f"{base}/api/runs?token={token}")[0] == 200
    assert get(f"{base}/api/nothing?token={token}")[0] == 404
    assert get(f"{base}/api/run?run=none&token={token}")[0] == 404


def test_it_answers_with_the_journal_and_writes_nothing(page: tuple[str, str]) -> None:
    """OBS-08: the events are the journal's; a POST is refused."""
    address, run = page
    base, _, token = address.partition("/?token=")
    status, body = get(f"{base}/api/events?run={run}&after=2&token={token}")
    events = json.loads(body)
    assert status == 200 and [event["seq"] for event in events][:2] == [3, 4]
    assert events[-1]["kind"] == "run.completed"
    request = urllib.request.Request(f"{base}/api/runs?token={token}", data=b"x")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=10)
    caught.value.close()
    assert caught.value.code == 501


@pytest.mark.skipif(BROWSER is None, reason="there is no chromium here (.ci/run installs it)")
def test_a_browser_shows_the_run_and_text_stays_text(page: tuple[str, str], tmp_path: Path) -> None:
    """Issue D 7: runs, one run's timeline with rounds, tool calls, usage; a prompt is no markup."""
    address, run = page
    command = [str(BROWSER), *QUIET, f"--user-data-dir={tmp_path}", "--virtual-time-budget=3000"]
    shown = subprocess.run(
        [*command, "--dump-dom", f"{address}#{run}"], capture_output=True, text=True, timeout=90
    )
    assert shown.returncode == 0, shown.stderr[-500:]
    text = re.sub(r"<(script|style).*?</\1>", "", shown.stdout, flags=re.DOTALL)
    assert "<title>purra</title>" in text  # the hostile prompt changed nothing
    assert "&lt;img src=x" in text
    for word in ("Round 1", "fs.grep", "input tokens", "Completed", "&lt;b&gt;one&lt;/b&gt;"):
        assert word in text, word
