"""Manifests that are right and manifests that each break one rule (MAN-001 to 003, 005, 006, 008).

The files are in `manifests/good` and `manifests/bad`; what is expected of each is here, so that a
file cannot bless its own message.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from purra.errors import PurraError
from purra.manifest.binding import BoundPlugin, bind
from purra.manifest.host import Caller, load_host
from purra.manifest.plugin import load_plugin

MANIFESTS = Path(__file__).parents[2] / "manifests"
BAD = MANIFESTS / "bad"
GOOD = MANIFESTS / "good"

# ruff: noqa: E501 - one message a line, whole
EXPECTED = {
    "address-malformed.host.toml": "FILE: agent.tools[0]: 'fs.grep' is not an address [invalid_manifest] (write PLUGIN-ID/NAME, as in 'files/fs.read')",
    "address-of-unnamed-plugin.host.toml": "FILE: agent.model: 'offline/extractive' is of a plugin that this manifest does not name [invalid_manifest] (add a section [plugins.offline]; named: files, program)",
    "address-twice.host.toml": "FILE: agent.tools[1]: 'files/fs.grep' is listed twice [invalid_manifest] (remove one)",
    "capability-network-without-port.plugin.toml": "FILE: capabilities.network[0]: 'example.org' is not host:port [invalid_manifest] (as in 'example.org:443')",
    "capability-relative.plugin.toml": "FILE: capabilities.fs.read[0]: 'data' is neither {config.KEY} nor absolute [invalid_manifest] (name a config key of the format path)",
    "capability-unknown-config-key.plugin.toml": "FILE: capabilities.fs.read[0]: there is no config key 'rot' [invalid_manifest] (did you mean 'root'?)",
    "capability-with-dots.plugin.toml": "FILE: capabilities.fs.read[0]: '{config.root}/..' has '..' [invalid_manifest] (name the folder itself)",
    "config-default-breaks-schema.plugin.toml": "FILE: config.root.default: 3 is not of type 'string' [invalid_manifest] (a default must fit the key's own schema)",
    "config-hidden-path.plugin.toml": "FILE: config.root: format = 'path' stands where paths cannot be found [invalid_manifest] (allowed below properties, additionalProperties, items, prefixItems, allOf, anyOf, oneOf)",
    "config-missing.host.toml": "FILE: plugins.files.config.root: is missing [invalid_manifest] (Folder that every path is confined to)",
    "config-not-a-schema.plugin.toml": "FILE: config.root.type: not a JSON Schema: 'text' is not valid under any of the given schemas [invalid_manifest] (json-schema.org says what may stand here (draft 2020-12))",
    "config-reference.plugin.toml": "FILE: config.root: '$ref' is not allowed in a config schema [invalid_manifest] (write out what it refers to)",
    "config-unknown-key.host.toml": "FILE: plugins.files.config.roots: is not a key of this plugin [invalid_manifest] (did you mean 'root'?)",
    "config-wrong-type.host.toml": "FILE: plugins.files.config.root: 5 is not of type 'string' [invalid_manifest] (Folder that every path is confined to)",
    "digest-not-sha256.host.toml": "FILE: plugins.files.digest: is not a digest: sha256: and 64 hex digits [invalid_manifest] (`purra plugins lock` writes it)",
    "duplicate-tool.host.toml": "FILE: agent.tools[1]: 'files/fs.grep' and 'program/fs.grep' offer one tool name [duplicate_tool] (leave one of them out; a model knows tools by name alone)",
    "grant-network-not-declared.host.toml": "FILE: plugins.files.grants.network: the plugin does not declare the capability network [invalid_manifest] (it declares: fs.read)",
    "grant-not-declared.host.toml": "FILE: plugins.files.grants.fs.write: the plugin does not declare the capability fs.write [invalid_manifest] (it declares: fs.read)",
    "grant-unknown-key.host.toml": "FILE: plugins.files.grants.fs.reed: is not a known key [invalid_manifest] (did you mean 'read'?)",
    "isolation-unknown-level.host.toml": "FILE: isolation.level: must be one of none, standard, strict; got 'paranoid' [invalid_manifest]",
    "man-001-extension-not-a-table.plugin.toml": "FILE: x-bad: must be a table [invalid_manifest] (write [x-bad])",
    "man-001-plugin-manifest.host.toml": "FILE: schema: 'purra.plugin/1' is another kind of file [invalid_manifest] (expected 'purra.host/1')",
    "man-001-schema-missing.plugin.toml": 'FILE: schema: is missing [invalid_manifest] (write schema = "purra.plugin/1")',
    "man-001-unknown-key.host.toml": "FILE: agent.tool: is not a known key [invalid_manifest] (did you mean 'tools'?)",
    "man-001-unknown-key.plugin.toml": "FILE: lifecycel: is not a known key [invalid_manifest] (did you mean 'lifecycle'?)",
    "man-001-unknown-major.host.toml": "FILE: schema: 'purra.host/9' is not supported [invalid_manifest] (this version reads purra.host/1 only)",
    "man-001-unknown-major.plugin.toml": "FILE: schema: 'purra.plugin/2' is not supported [invalid_manifest] (this version reads purra.plugin/1 only)",
    "man-001-unknown-nested-key.plugin.toml": "FILE: provides[0].efect: is not a known key [invalid_manifest] (did you mean 'effect'?)",
    "man-002-id-ligature.plugin.toml": "FILE: id: 'ﬁles' is not a plugin id: lower-case ASCII letters, digits and single hyphens, a letter first, at most 64 characters [invalid_manifest] (write 'files')",
    "man-002-id-upper-case.plugin.toml": "FILE: id: 'Files' is not a plugin id: lower-case ASCII letters, digits and single hyphens, a letter first, at most 64 characters [invalid_manifest] (write 'files')",
    "man-002-names-differ-in-case-only.plugin.toml": "FILE: provides[1].name: 'fs.grep' and 'FS.Grep' are one name twice [invalid_manifest] (names must differ in more than case)",
    "man-002-plugin-id.host.toml": "FILE: plugins.Program: 'Program' is not a plugin id: lower-case ASCII letters, digits and single hyphens, a letter first, at most 64 characters [invalid_manifest] (write 'program')",
    "man-002-specifier.plugin.toml": "FILE: requires.sqlite: 'around 2' is not a version specifier (PEP 440) [invalid_manifest] (write it as in '>=1.2,<2')",
    "man-002-version.plugin.toml": "FILE: version: 'one' is not a version (PEP 440) [invalid_manifest] (write it as in 1.2.0)",
    "man-003-command-absolute.plugin.toml": "FILE: host.command[0]: '/usr/bin/node' is absolute [invalid_manifest] (name a file in the package, or a program on PATH)",
    "man-003-command-in-one-item.plugin.toml": "FILE: host.command[0]: 'node main.js; rm -rf /' is not the name of a program [invalid_manifest] (give each argument its own item; nothing is split and no shell runs)",
    "man-003-command-is-a-line.plugin.toml": "FILE: host.command: must be a list, not text [invalid_manifest]",
    "man-003-command-is-a-shell.plugin.toml": "FILE: host.command[0]: 'bash' is a shell or a launcher [invalid_manifest] (name the program itself)",
    "man-003-command-leaves-the-package.plugin.toml": "FILE: host.command[1]: '../other/main.py' leaves the package folder [invalid_manifest] (put the file into the package)",
    "man-003-entry-and-command.plugin.toml": "FILE: host: must have exactly one of 'entry' and 'command' [invalid_manifest]",
    "man-003-entry-without-attribute.plugin.toml": "FILE: host.entry: 'purra_plugin_files' is not MODULE:ATTRIBUTE [invalid_manifest] (write it as in 'my_plugin:plugin')",
    "man-005-effect-missing.plugin.toml": "FILE: provides[0].effect: is missing [invalid_manifest] (every tool declares its effect class)",
    "man-005-effect-of-a-model.plugin.toml": "FILE: provides[0].effect: is for tools, not for a model [invalid_manifest] (remove the key)",
    "man-005-effect-unknown.plugin.toml": "FILE: provides[0].effect: must be one of pure, world_read, world_write, external_read, external_write, irreversible; got 'read' [invalid_manifest]",
    "man-006-limit-infinite.plugin.toml": "FILE: lifecycle.idle_s: a float that is not finite is not allowed [invalid_manifest] (allowed: text, finite numbers, true and false, lists and tables, 64 levels of them)",
    "man-006-limit-too-large.plugin.toml": "FILE: limits.inflight: must be at most 1024 [invalid_manifest]",
    "man-006-limit-zero.host.toml": "FILE: agent.limits.max_rounds: must be at least 1 [invalid_manifest]",
    "man-006-limit-zero.plugin.toml": "FILE: limits.inflight: must be at least 1 [invalid_manifest]",
    "man-006-memory-without-unit.plugin.toml": "FILE: limits.memory: '256' is not a size [invalid_manifest] (write a whole number of KiB, MiB or GiB)",
    "man-008-dotted-key.plugin.toml": "FILE: line 6: a dotted key of more than 64 parts [invalid_manifest] (write it in fewer parts)",
    "man-008-nested-too-deeply.plugin.toml": "FILE: x-a.b[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][...: nesting deeper than 64 is not allowed [invalid_manifest] (allowed: text, finite numbers, true and false, lists and tables, 64 levels of them)",
    "man-008-not-toml.plugin.toml": "FILE: is not TOML: Expected '=' after a key in a key/value pair (at line 3, column 4) [invalid_manifest] (https://toml.io says how)",
    "needs-not-declared.plugin.toml": "FILE: provides[0].needs[0]: 'fs.write' is not among [capabilities] [invalid_manifest] (did you mean 'fs.read'?)",
    "params-not-scalar.host.toml": "FILE: params.root: must be text, a number, true or false [invalid_manifest]",
    "placeholder-unknown-parameter.host.toml": "FILE: plugins.files.config.root: there is no parameter 'rot' [invalid_manifest] (did you mean 'root'?)",
    "placeholder-unknown-word.host.toml": "FILE: plugins.files.config.root: {sate} is not a placeholder [invalid_manifest] (known: {params.NAME}, {state}; write {{sate}} for the text itself)",
    "plg-001-nothing-provided.plugin.toml": "FILE: provides: must not be empty [invalid_manifest]",
    "plg-001-unknown-host-kind.plugin.toml": "FILE: host.kind: must be one of process, inproc; got 'thread' [invalid_manifest]",
    "plg-001-unknown-kind.plugin.toml": "FILE: provides[0].kind: must be one of model, tool, context, store, policy, memory, sandbox; got 'tol' [invalid_manifest] (did you mean 'tool'?)",
    "plg-002-unknown-contract.plugin.toml": "FILE: provides[0].contract: 'purra.tool/2' is not supported [invalid_manifest] (write 'purra.tool/1')",
    "plg-020-wasm.plugin.toml": "FILE: host.kind: must be one of process, inproc; got 'wasm' [invalid_manifest]",
    "plugin-drift.host.toml": "FILE: plugins.files.digest: the manifest of files 0.1.0 is not the one that was locked [plugin_drift] (look at what changed, then `purra plugins lock`)",
    "pre-002-section-twice.host.toml": "FILE: agent.prompt[1].name: two sections are named 'a' [invalid_manifest] (rename one of them)",
    "secret-in-the-manifest.host.toml": 'FILE: plugins.files.secrets.KEY: is not a reference to a secret [invalid_manifest] (write "env:VARIABLE"; a secret never stands in a manifest)',
    "secret-not-declared.host.toml": 'FILE: plugins.files.secrets.KEY: the plugin does not declare this secret [invalid_manifest] (remove it; a plugin that wants it says host = ["secret:KEY"])',
    "tool-001-input-not-an-object.plugin.toml": 'FILE: provides[0].input: the parameters of a tool must be of type object [invalid_manifest] (write type = "object", and the parameters as properties)',
    "tool-001-keyword-outside-the-subset.plugin.toml": "FILE: provides[0].input: /properties/pattern: the keyword 'contentEncoding' is not in the admitted subset [invalid_manifest] (admitted: type, properties, required, additionalProperties, items, anyOf, oneOf, enum, const, minLength, maxLength, minItems, maxItems, uniqueItems, minimum, maximum, title, description)",
    "unsupported-hooks.host.toml": "FILE: hooks.use: extensions in the kernel's process are not supported yet [unsupported] (remove the key)",
    "unsupported-middleware.host.toml": "FILE: agent.middleware: extensions in the kernel's process are not supported yet [unsupported] (remove the key)",
}


def bound(path: Path) -> dict[str, BoundPlugin]:
    """Every plugin that the host manifest names, taken from the good examples."""
    host = load_host(path, Caller(environment={}))
    installed = {plugin.id: plugin for plugin in map(load_plugin, GOOD.glob("*.plugin.toml"))}
    return {name: bind(host, installed[name]) for name in host.plugins}


def load(path: Path) -> object:
    return load_plugin(path) if path.name.endswith(".plugin.toml") else bound(path)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_bad_manifest_is_refused_with_file_key_reason_and_hint(name: str) -> None:
    """APP-01, MAN-001 to 006 and 008, PLG-01, PLG-02, PLG-20, PRE-02: one coded error each."""
    path = BAD / name
    with pytest.raises(PurraError) as caught:
        load(path)
    assert str(caught.value).replace(str(path), "FILE") == EXPECTED[name]
    assert caught.value.hint or "must" in caught.value.message, "it says what to do"


def test_every_bad_example_has_an_expectation() -> None:
    """A file that is forgotten here would be a rule that nobody checks."""
    assert {path.name for path in BAD.iterdir()} == set(EXPECTED)


@pytest.mark.parametrize("path", sorted(BAD.iterdir()), ids=lambda path: path.name)
def test_a_bad_example_says_why_it_is_bad(path: Path) -> None:
    """The first line of each names its rule in words."""
    assert path.read_text().startswith("# ")


@pytest.mark.parametrize("path", sorted(GOOD.iterdir()), ids=lambda path: path.name)
def test_a_good_manifest_is_accepted(path: Path) -> None:
    """The other half of every rule above: what is right is let through."""
    assert load(path)


def test_several_problems_come_in_one_error(tmp_path: Path) -> None:
    """One error tells the first problem and how many more there are, and lists them for programs."""
    path = tmp_path / "purra-plugin.toml"
    path.write_text('schema = "purra.plugin/1"\nid = "a"\nsummary = 1\nhots = {}\n')
    with pytest.raises(PurraError) as caught:
        load_plugin(path)
    assert "hots: is not a known key (and 4 more)" in str(caught.value)
    assert [problem["key"] for problem in caught.value.detail["problems"]] == [
        "hots",
        "version",
        "summary",
        "host",
        "provides",
    ]
