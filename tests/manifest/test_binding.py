"""Grants against capabilities, config against schemas, plugins against each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from purra.errors import PurraError
from purra.manifest.binding import BoundPlugin, bind
from purra.manifest.config import config_key, resolve_config
from purra.manifest.host import Caller, load_host
from purra.manifest.names import RefusedError
from purra.manifest.order import start_order
from purra.manifest.permissions import Permissions, covered, excess
from purra.manifest.plugin import PluginManifest, load_plugin

GOOD = Path(__file__).parents[2] / "manifests" / "good"


def bound(tmp_path: Path, section: str) -> BoundPlugin:
    """The plugin `everything` under a host manifest with that section."""
    path = tmp_path / "purra.toml"
    path.write_text(
        'schema = "purra.host/1"\nname = "t"\n'
        '[agent]\nid = "a"\nrevision = "1"\nmodel = "everything/echo"\n'
        f'[plugins.everything]\nconfig = {{ folders = ["/data"] }}\n{section}\n'
    )
    host = load_host(path, Caller(environment={}))
    return bind(host, load_plugin(GOOD / "everything.plugin.toml"))


def test_what_is_not_granted_is_not_offered(tmp_path: Path) -> None:
    """Tables: ungranted needs, not offered; nothing is granted by default."""
    plugin = bound(tmp_path, "")
    assert plugin.granted == Permissions()
    assert dict(plugin.withheld) == {"note.write": ("fs.write", "secret:API_KEY")}
    assert [offer.name for offer in plugin.offers] == ["note.burn", "remote", "echo", "shelf"]


def test_a_grant_of_part_of_the_need_is_not_enough(tmp_path: Path) -> None:
    """A need is met when every wanted path is inside a granted one."""
    secret = 'secrets = { API_KEY = "env:K" }'
    narrow = bound(tmp_path, f'grants = {{ fs.write = ["/data/cache/deeper"] }}\n{secret}')
    assert dict(narrow.withheld) == {"note.write": ("fs.write",)}
    exact = bound(tmp_path, f'grants = {{ fs.write = ["/data/cache"] }}\n{secret}')
    assert not exact.withheld
    beside = bound(tmp_path, f'grants = {{ fs.write = ["/data/cachet"] }}\n{secret}')
    assert dict(beside.withheld) == {"note.write": ("fs.write",)}


def test_a_host_service_that_does_not_exist_yet_is_refused(tmp_path: Path) -> None:
    """Said, not ignored: a grant of nothing would look like a grant."""
    text = (GOOD / "everything.plugin.toml").read_text()
    path = tmp_path / "purra-plugin.toml"
    path.write_text(text.replace('host = ["secret:API_KEY"]', 'host = ["secret:API_KEY", "model"]'))
    (tmp_path / "purra.toml").write_text(
        'schema = "purra.host/1"\nname = "t"\n'
        '[agent]\nid = "a"\nrevision = "1"\nmodel = "everything/echo"\n'
        '[plugins.everything]\nconfig.folders = []\ngrants.host = ["model"]\n'
    )
    with pytest.raises(PurraError) as caught:
        bind(load_host(tmp_path / "purra.toml", Caller(environment={})), load_plugin(path))
    assert caught.value.code == "unsupported"


@pytest.mark.parametrize(
    ("wanted", "granted", "over", "met"),
    [
        (Permissions(), Permissions(), [], set()),
        (Permissions(), Permissions(fs_read=("/",)), ["fs.read"], set()),
        (Permissions(fs_read=("/a/b",)), Permissions(fs_read=("/a",)), [], {"fs.read"}),
        (Permissions(fs_read=("/a",)), Permissions(fs_read=("/a/b",)), [], set()),
        (Permissions(fs_read=("/a",)), Permissions(fs_write=("/a",)), ["fs.write"], set()),
        (Permissions(network="any"), Permissions(network=("a:1",)), [], {"network"}),
        (Permissions(network="any"), Permissions(network="any"), [], {"network"}),
        (Permissions(network=("a:1",)), Permissions(network="any"), ["network"], {"network"}),
        (Permissions(network=("a:1",)), Permissions(network=("b:1",)), ["network"], set()),
        (Permissions(network=("a:1",)), Permissions(network=("a:1",)), [], {"network"}),
        (
            Permissions(network=("a:1", "b:1")),
            Permissions(network=("b:1", "a:1")),
            [],
            {"network"},
        ),
        (Permissions(subprocess=True), Permissions(subprocess=True), [], {"subprocess"}),
        (Permissions(), Permissions(subprocess=True), ["subprocess"], set()),
        (Permissions(env=("A",)), Permissions(env=("A", "B")), ["env"], {"env:A"}),
        (Permissions(host=("memory",)), Permissions(host=("model",)), ["host"], set()),
    ],
)
def test_grants_against_capabilities(
    wanted: Permissions, granted: Permissions, over: list[str], met: set[str]
) -> None:
    """A grant is at most what is declared in kind; a need is met in full or not at all."""
    assert [".".join(place) for place, _ in excess(wanted, granted)] == over
    assert covered(wanted, granted) == met


def locate(path: str, place: tuple[str | int, ...]) -> str:
    return f"/abs/{path}@{'.'.join(map(str, place))}"


def resolved(schema: dict[str, Any], value: Any) -> Any:
    return resolve_config({"k": config_key(schema)}, {"k": value}, locate)


def test_paths_are_found_wherever_they_may_stand() -> None:
    """Tables, paths: every `format = "path"` is made absolute, through each admitted keyword."""
    path = {"type": "string", "format": "path"}
    assert resolved(path, "x").values["k"] == "/abs/x@k"
    schema = {
        "type": "object",
        "properties": {"a": path, "b": {"type": "string"}},
        "additionalProperties": {
            "type": "array",
            "prefixItems": [{"type": "integer"}],
            "items": path,
        },
    }
    config = resolved(schema, {"a": "x", "b": "y", "c": [1, "z"]})
    assert config.values["k"] == {"a": "/abs/x@k.a", "b": "y", "c": (1, "/abs/z@k.c.1")}
    assert config.paths["k"] == ("/abs/x@k.a", "/abs/z@k.c.1")
    either = {"anyOf": [{"type": "integer"}, path]}
    assert resolved(either, "x").values["k"] == "/abs/x@k"
    assert resolved(either, 5).values["k"] == 5
    assert resolved({"oneOf": [{"type": "string", "maxLength": 1}, {"allOf": [path, {"minLength": 2}]}]}, "xy").paths["k"] == ("/abs/xy@k",)  # fmt: skip # noqa: E501


def test_a_key_is_required_unless_it_says_otherwise() -> None:
    """A key without default is configured, or says `required = false`."""
    assert resolve_config({"k": config_key({"required": False})}, {}, locate).values == {}
    assert resolve_config({"k": config_key({"default": 0})}, {}, locate).values == {"k": 0}
    with pytest.raises(RefusedError, match="is missing") as caught:
        resolve_config({"k": config_key({"type": "integer"})}, {}, locate)
    assert caught.value.place == ("k",)
    for nonsense in ({"required": True, "default": 1}, {"required": "yes"}):
        with pytest.raises(RefusedError):
            config_key(nonsense)


def test_a_wrong_value_is_named_by_its_place() -> None:
    """The place goes down to the part that is wrong."""
    schema = {
        "type": "array",
        "items": {"type": "object", "properties": {"n": {"type": "integer"}}},
    }
    with pytest.raises(RefusedError) as caught:
        resolved(schema, [{"n": 1}, {"n": "x" * 5000}])
    assert caught.value.place == ("k", 1, "n")
    assert len(caught.value.reason) <= 200


def plugin(name: str, version: str = "1.0", **requires: str) -> PluginManifest:
    return replace(
        load_plugin(GOOD / "program.plugin.toml"), id=name, version=version, requires=requires
    )


def order(*plugins: PluginManifest) -> tuple[str, ...]:
    return start_order({item.id: item for item in plugins})


def test_requirements_start_first_whatever_the_order_of_writing() -> None:
    """PLG-03, REG-007: topological, ties by id."""
    a, b, c = plugin("a", c=">=1", b=""), plugin("b", c=""), plugin("c")
    assert order(a, b, c) == order(c, b, a) == order(b, a, c) == ("c", "b", "a")
    assert order(plugin("z"), plugin("y")) == ("y", "z")


@pytest.mark.parametrize(
    ("plugins", "words"),
    [
        ([plugin("a", b="")], "a 1.0 -> b: the host manifest does not name 'b'"),
        ([plugin("a", b=">=2"), plugin("b")], "a 1.0 -> b >=2: version 1.0 is installed"),
        ([plugin("a", b=""), plugin("b", c=""), plugin("c", b="")], "in a circle: b -> c -> b"),
        ([plugin("a", a="")], "in a circle: a -> a"),
    ],
)
def test_requirements_that_cannot_be_met_name_the_chain(
    plugins: list[PluginManifest], words: str
) -> None:
    """PLG-03, REG-007: missing, wrong version, circle; before anything is spawned."""
    with pytest.raises(PurraError) as caught:
        order(*plugins)
    assert caught.value.code == "plugin_broken"
    assert words in str(caught.value)


def test_a_release_candidate_counts_as_installed() -> None:
    """A version that is there satisfies what it satisfies, pre-release or not."""
    assert order(plugin("a", b=">=1.0rc1"), plugin("b", "1.0rc2")) == ("b", "a")
