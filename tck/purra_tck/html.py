"""Reports as one file that opens anywhere, with nothing to fetch: `index.html`.

It is made from the values of `tck.json` alone, so what it shows is what `verify` judges. Several
reports make one page: a row for each subject, a column for each group of rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from purra_tck.mends import mends
from purra_tck.rules import Rule, catalogue

__all__ = ["page"]

FEW: Final = 2
"""Subjects that are named in the title."""
FRAMES: Final = 200
"""Frames shown of one rule, the last ones."""
RED: Final = ("fail", "untestable", "flaky", "error")
ORDER: Final = (*RED, "warn", "waived", "not-run", "n/a", "pass")
"""Worst first."""
MARKS: Final[Mapping[str, str]] = {
    "pass": "✓",
    "fail": "✗",
    "warn": "!",
    "n/a": "–",
    "waived": "~",
    "untestable": "?",
    "flaky": "≈",
    "error": "E",
    "not-run": "·",
}
Report = Mapping[str, Any]

_STYLE: Final = """
:root { color-scheme: light dark; --line: #d8dce2; --soft: #f5f6f8; --ink: #1d2430; --dim: #667085;
  --good: #17803d; --bad: #c02626; --odd: #a15c00; --none: #8a93a3; --paper: #fff; --code: #eef1f5 }
@media (prefers-color-scheme: dark) { :root { --line: #313a48; --soft: #1a212c; --ink: #e4e8ee;
  --dim: #93a0b3; --good: #4cc27a; --bad: #ff7b72; --odd: #e3a94b; --none: #77839a;
  --paper: #10151d; --code: #1f2733 } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem 1.25rem 4rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 1.35rem; margin: 0 0 .2rem } h2 { font-size: 1.1rem; margin: 2.2rem 0 .5rem }
h3 { font-size: .95rem; margin: 1.4rem 0 .4rem; color: var(--dim); font-weight: 600 }
.dim { color: var(--dim) } .mono, code, pre { font: 12.5px/1.5 ui-monospace, monospace }
.verdict { display: inline-block; padding: .1rem .6rem; border-radius: 1rem; font-weight: 600;
  border: 1px solid currentColor; font-size: .85rem }
.pass { color: var(--good) } .fail, .error, .untestable, .flaky { color: var(--bad) }
.warn, .waived { color: var(--odd) } .na, .not-run { color: var(--none) }
table { border-collapse: collapse; width: 100% }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: .5rem }
.matrix th, .matrix td { padding: .4rem .6rem; border-bottom: 1px solid var(--line);
  text-align: center; white-space: nowrap } .matrix tr:last-child > * { border-bottom: 0 }
.matrix th:first-child { text-align: left; font-weight: 600 }
.matrix thead th { background: var(--soft); font-size: .8rem; color: var(--dim) }
.matrix a { color: inherit; text-decoration: none; font-weight: 600 }
.matrix a:hover { text-decoration: underline } summary code { background: var(--code);
  padding: 0 .25rem; border-radius: .2rem }
.facts { display: flex; flex-wrap: wrap; gap: .15rem 1.4rem; font-size: .85rem; margin: .4rem 0 }
details.rule { border: 1px solid var(--line); border-radius: .4rem; margin: .3rem 0 }
details.rule[open] { background: var(--soft) }
summary { display: grid; grid-template-columns: 1.4rem 5.2rem 4.2rem 3.6rem 1fr auto; gap: .4rem;
  padding: .35rem .7rem; cursor: pointer; align-items: baseline; list-style: none }
summary::-webkit-details-marker { display: none }
summary .mark { font-weight: 700; text-align: center } summary .id { font-weight: 600 }
summary .level, summary .clause, summary .time { color: var(--dim); font-size: .8rem }
.body { padding: .2rem 1rem 1rem 2.6rem }
dl { display: grid; grid-template-columns: 6.5rem 1fr; gap: .25rem .8rem; margin: .4rem 0;
  align-items: baseline }
dt { color: var(--dim) } dd { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere }
dd.told { font: 12.5px/1.5 ui-monospace, monospace }
.frames { max-height: 26rem; overflow: auto; border: 1px solid var(--line); border-radius: .4rem;
  background: var(--paper) }
.frames td, .frames th { padding: .15rem .5rem; vertical-align: top; text-align: left;
  border-bottom: 1px solid var(--line); font: 12px/1.45 ui-monospace, monospace }
.frames th { position: sticky; top: 0; background: var(--soft); color: var(--dim) }
.frames td.ms { text-align: right; color: var(--dim); white-space: nowrap }
.frames td.what { overflow-wrap: anywhere; width: 100% } .frames .hex { color: var(--dim) }
.host td { background: color-mix(in srgb, var(--code) 55%, transparent) }
ul.seen { margin: .2rem 0; padding-left: 1.1rem } ul.seen li { overflow-wrap: anywhere;
  font: 12.5px/1.5 ui-monospace, monospace }
.inner > summary { display: block; padding: .2rem 0; color: var(--dim) }
nav { display: flex; flex-wrap: wrap; gap: .4rem; margin: .8rem 0 }
nav button { font: inherit; font-size: .85rem; padding: .1rem .6rem; border: 1px solid var(--line);
  border-radius: 1rem; background: var(--soft); color: var(--ink); cursor: pointer }
nav button[aria-pressed=true] { border-color: currentColor; font-weight: 600 }
@media (max-width: 44rem) { summary { grid-template-columns: 1.4rem 5.2rem 1fr }
  summary .level, summary .clause, summary .time { display: none } .body { padding-left: 1rem }
  dl { grid-template-columns: 1fr } }
"""
_SCRIPT: Final = """
const rules = [...document.querySelectorAll('details.rule')];
for (const button of document.querySelectorAll('nav button')) button.onclick = () => {
  for (const other of document.querySelectorAll('nav button'))
    other.setAttribute('aria-pressed', other === button);
  const kinds = button.dataset.show.split(' ');
  for (const rule of rules)
    rule.hidden = kinds[0] !== '*' && !kinds.includes(rule.dataset.verdict);
};
const open = () => {
  const found = document.getElementById(location.hash.slice(1));
  if (found && found.tagName === 'DETAILS') { found.hidden = false; found.open = true;
    found.scrollIntoView(); }
};
addEventListener('hashchange', open); open();
"""


def page(reports: Sequence[Report]) -> str:
    """The page for the values of one or more `tck.json`."""
    few = len(reports) <= FEW
    names = ", ".join(map(_name, reports)) if few else f"{len(reports)} subjects"
    body = "".join(
        [
            f"<h1>Conformance of {escape(names)}</h1>",
            '<p class="dim">What the kit asked, what it saw, and what went over the wire.</p>',
            _matrix(reports),
            _filters(reports),
            *(_section(number, report) for number, report in enumerate(reports)),
        ]
    )
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(names)}: conformance</title><style>{_STYLE}</style></head>"
        f"<body>{body}<script>{_SCRIPT}</script></body></html>\n"
    )


def _name(report: Report) -> str:
    subject = report["subject"]
    return " ".join(filter(None, (subject["name"], subject["version"])))


def _groups(report: Report) -> dict[str, list[tuple[str, Mapping[str, Any]]]]:
    """Prefix of the ids -> rules, in the order of the report."""
    groups: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for rule_id, row in report["rules"].items():
        groups.setdefault(rule_id.partition("-")[0], []).append((rule_id, row))
    return groups


def _worst(verdicts: Iterable[str]) -> str:
    known = set(verdicts)
    some = known - {"n/a", "pass"} or ({"pass"} if "pass" in known else known)
    return next((status for status in ORDER if status in some), "n/a")


def _class(status: str) -> str:
    return "na" if status == "n/a" else status


# --- the parts ----------------------------------------------------------------------------------


def _matrix(reports: Sequence[Report]) -> str:
    there = {group for report in reports for group in _groups(report)}
    known = dict.fromkeys(rule_id.partition("-")[0] for rule_id in catalogue())
    columns = [group for group in known if group in there] + sorted(there - set(known))
    head = "".join(f"<th>{escape(group)}</th>" for group in columns)
    rows = []
    for number, report in enumerate(reports):
        groups = _groups(report)
        cells = "".join(_cell(number, group, groups.get(group, [])) for group in columns)
        name = f'<a href="#r{number}">{escape(_name(report))}</a>'
        rows.append(f"<tr><th>{name}</th>{cells}<td>{_verdict(report)}</td></tr>")
    return (
        f'<div class="scroll"><table class="matrix"><thead><tr><th>subject</th>{head}<th></th></tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(number: int, group: str, rules: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    if not rules:
        return '<td class="na"></td>'
    verdicts = [row["verdict"] for _, row in rules]
    asked = [verdict for verdict in verdicts if verdict != "n/a"]
    text = f"{asked.count('pass')}/{len(asked)}" if asked else "n/a"
    counts = ", ".join(
        f"{verdicts.count(status)} {status}" for status in ORDER if status in verdicts
    )
    link = f'<a href="#r{number}-{group}" title="{escape(counts)}">{text}</a>'
    return f'<td class="{_class(_worst(verdicts))}">{link}</td>'


def _verdict(report: Report) -> str:
    if report["cutShort"]:
        word, status = "cut short", "fail"
    elif not report["conformant"]:
        word, status = "not conformant", "fail"
    elif report["partial"]:
        word, status = "conformant in part", "warn"
    else:
        word, status = "conformant in all that ran", "pass"
    return f'<span class="verdict {status}">{word}</span>'


def _filters(reports: Sequence[Report]) -> str:
    verdicts = [row["verdict"] for report in reports for row in report["rules"].values()]
    buttons = [("all", "*", len(verdicts))]
    buttons += [
        (name, " ".join(kinds), sum(verdicts.count(kind) for kind in kinds))
        for name, kinds in {
            "red": RED,
            "warn": ("warn", "waived"),
            "pass": ("pass",),
            "n/a": ("n/a",),
            "not run": ("not-run",),
        }.items()
    ]
    return "<nav>{}</nav>".format(
        "".join(
            f'<button data-show="{kinds}" aria-pressed="{str(name == "all").lower()}">'
            f"{name} {count}</button>"
            for name, kinds, count in buttons
            if count
        )
    )


def _section(number: int, report: Report) -> str:
    subject, host = report["subject"], report["host"]
    facts = {
        "suites": report["suite"].replace("+", ", "),
        "kind": subject["kind"],
        "digest": subject["digest"][:23],
        "kit": report["kit"],
        "Python": host["python"],
        "on": host["os"],
        "seed": report["seed"],
    }
    told = "".join(
        f'<span><span class="dim">{name}</span> {escape(str(value))}</span>'
        for name, value in facts.items()
        if value not in ("", None)
    )
    totals = " · ".join(
        f"{level} " + ", ".join(f"{count} {status}" for status, count in sorted(row.items()))
        for level, row in report["totals"].items()
        if row
    )
    parts = [f'<h2 id="r{number}">{escape(_name(report))} {_verdict(report)}</h2>']
    parts.append(f'<div class="facts">{told}</div><p class="dim">{escape(totals)}</p>')
    for group, rules in _groups(report).items():
        parts.append(f'<h3 id="r{number}-{group}">{escape(group)}</h3>')
        parts += [_rule(number, rule_id, row) for rule_id, row in rules]
    return "".join(parts)


def _rule(number: int, rule_id: str, row: Mapping[str, Any]) -> str:
    status = row["verdict"]
    rule = catalogue().get(rule_id)
    text = rule.text if rule else "a rule that this kit does not know"
    seconds = sum(row.get("durations_s", ()))
    time = f"{seconds:.2f} s" if seconds else ""
    return (
        f'<details class="rule" id="r{number}-{rule_id}" data-verdict="{status}"><summary>'
        f'<span class="mark {_class(status)}" title="{status}">{MARKS.get(status, "?")}</span>'
        f'<span class="id">{rule_id}</span><span class="level">{escape(row["level"])}</span>'
        f'<span class="clause">§{escape(row["clause"])}</span><span>{_coded(text)}</span>'
        f'<span class="time">{time}</span></summary>'
        f'<div class="body">{"".join(_told(rule_id, rule, row))}</div></details>'
    )


def _coded(text: str) -> str:
    """What stands between backquotes as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))


def _told(rule_id: str, rule: Rule | None, row: Mapping[str, Any]) -> Iterator[str]:
    status = row["verdict"]
    pairs = [("verdict", f'<span class="{_class(status)}">{status}</span>')]
    for name in ("expected", "observed", "reason", "place", "mend", "evidence"):
        if row.get(name):
            pairs.append((name, escape(str(row[name]))))
    if status in RED and not row.get("mend") and rule_id in mends():
        pairs.append(("mend", escape(mends()[rule_id])))
    if rule is not None and rule.saboteurs:
        pairs.append(("saboteurs", escape(", ".join(rule.saboteurs))))
    if status == "not-run":
        pairs.append(("why", "no check ran"))
    pairs.append(("explain", f"purra tck explain {rule_id}"))
    yield "<dl>"
    yield from (f'<dt>{name}</dt><dd class="told">{text}</dd>' for name, text in pairs)
    yield "</dl>"
    seen = row.get("observations", ())
    if seen:
        lines = "".join(f"<li>{escape(str(line)[:400])}</li>" for line in seen)
        opened = " open" if status in RED else ""
        yield (
            f'<details class="inner"{opened}><summary>{len(seen)} observations</summary>'
            f'<ul class="seen">{lines}</ul></details>'
        )
    frames = row.get("frames", ())
    if frames:
        yield from _frames(frames, opened=status in RED)


def _frames(frames: Sequence[Mapping[str, Any]], *, opened: bool) -> Iterator[str]:
    yield f'<details class="inner"{" open" if opened else ""}>'
    yield f"<summary>{len(frames)} frames, in milliseconds</summary>"
    yield '<div class="frames"><table><thead><tr><th>ms</th><th></th><th>from</th><th>frame</th>'
    yield "<th>id</th><th>what</th></tr></thead><tbody>"
    for frame in frames[-FRAMES:]:
        sender = str(frame.get("from", ""))
        body = escape(str(frame.get("decoded", "")))
        if frame.get("hex"):
            body += f'<div class="hex">{escape(str(frame["hex"])[:160])}</div>'
        cells = (frame.get("process", ""), sender, frame.get("kind", ""), frame.get("call", ""))
        yield f'<tr class="{escape(sender)}"><td class="ms">{frame.get("ms", 0):.1f}</td>'
        yield "".join(f"<td>{escape(str(cell))}</td>" for cell in cells)
        yield f'<td class="what">{body}</td></tr>'
    yield "</tbody></table></div></details>"
