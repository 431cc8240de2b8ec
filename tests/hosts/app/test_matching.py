"""What is found against what is asked for, without a search path and without a process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from purra.errors import PurraError
from purra.manifest.host import Caller, HostManifest, load_host
from purra.manifest.plugin import load_plugin
from purra.registry.discovery import Discovered, Discovery
from purra_hosts.app.matching import match, match_store

GOOD = Path(__file__).parents[3] / "manifests" / "good"


def everything(model: str = "everything/echo") -> HostManifest:
    """The good example that names every kind of adapter."""
    caller = Caller(params={"model": model}, environment={})
    return load_host(GOOD / "everything.host.toml", caller)


def found(name: str) -> Discovered:
    manifest = load_plugin(GOOD / f"{name}.plugin.toml")
    return Discovered(name, "ok", f"purra-plugin-{name} 1", manifest, manifest.path)


INSTALLED = Discovery(tuple(map(found, ("everything", "files", "program"))), (), None)


def refused(host: HostManifest, discovery: Discovery = INSTALLED) -> PurraError:
    with pytest.raises(PurraError) as caught:
        match(host, discovery)
    return caught.value


def without(name: str) -> Discovery:
    return replace(INSTALLED, plugins=tuple(p for p in INSTALLED.plugins if p.id != name))


def test_every_kind_of_adapter_is_found() -> None:
    """Design, vocabulary: an adapter's address is plugin and name; requirements start first."""
    matched = match(everything(), INSTALLED)
    assert matched.model is not None and matched.store is not None and matched.policy is not None
    assert str(matched.model.address) == "everything/echo"
    assert [str(tool.address) for tool in matched.tools] == [
        "files/fs.grep",
        "everything/note.write",
        "everything/note.burn",
    ]
    assert list(matched.plugins) == ["files", "program", "everything"]


def test_what_a_run_pins_is_the_address_and_what_is_declared() -> None:
    """PLG-25, invariant 5: plugin id, contract and schema digest; never an epoch or an instance."""
    (first, *_) = match(everything(), INSTALLED).tools
    assert first.pinned == f"files/fs.grep {first.offer.digest}"
    assert first.offer.digest.startswith("sha256:")


def test_beside_a_foreign_package_nothing_starts() -> None:
    """Design, the tree: refused when both are installed, before anything else is looked at."""
    foreign = Discovery((), (), "purra 1.0.3 in /site")
    assert refused(everything(), foreign).code == "package_conflict"
    with pytest.raises(PurraError, match=r"purra 1\.0\.3 in /site is another project"):
        match_store(everything(), foreign)


@pytest.mark.parametrize("address", ["everything/remote", "everything/remote.thing"])
def test_tools_of_a_dynamic_catalog_are_not_there_yet(address: str) -> None:
    """Said as such, and not as a tool that does not exist."""
    host = everything()
    plugin, _, name = address.partition("/")
    tool = replace(host.adapters.tools[0], plugin=plugin, name=name)
    error = refused(replace(host, adapters=replace(host.adapters, tools=(tool,))))
    assert error.code == "unsupported" and "dynamic catalogs" in str(error)


def test_a_write_tool_in_our_own_process_must_be_wanted() -> None:
    """Invariant 1, design, hosts: an explicit override in the host manifest."""
    plain = found("everything")
    assert plain.manifest is not None
    runs = replace(plain.manifest.runs, host="inproc", entry="a:b", command=None)
    inproc = replace(plain, manifest=replace(plain.manifest, runs=runs))
    installed = replace(INSTALLED, plugins=(*without("everything").plugins, inproc))
    error = refused(everything(), installed)
    assert error.code == "invalid_manifest" and "inproc_writes" in error.where
    host = everything()
    use = replace(host.plugins["everything"], inproc_writes=True)
    match(replace(host, plugins={**host.plugins, "everything": use}), installed)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            "everything/ecko",
            "offers no model of that name [adapter_not_found] (did you mean 'echo'",
        ),
        ("program/x", "offers no model of that name [adapter_not_found]"),
        ("everything/shelf", "it is a store and stands where a model is needed"),
        ("program/house-rules", "it is of the kind policy and stands where a model is needed"),
    ],
)
def test_an_adapter_that_is_not_there_is_named_with_the_near_miss(model: str, words: str) -> None:
    """PLG-02: a wrong kind is an error of its own."""
    error = refused(everything(model=model))
    assert error.code == "adapter_not_found"
    assert words in str(error)


def test_a_plugin_that_is_not_installed_says_what_to_do() -> None:
    """Nothing near: then where to look."""
    error = refused(everything(), without("program"))
    assert error.code == "plugin_not_found"
    assert "`purra plugins list`" in str(error)


def test_the_store_alone_does_not_need_the_others() -> None:
    """A broken tool does not keep anybody from looking at runs."""
    matched = match_store(everything(), without("program"))
    assert matched.model is None and matched.tools == ()
    assert matched.store is not None and list(matched.plugins) == ["everything"]
