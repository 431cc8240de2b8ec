"""Stands in for a model: what to do next follows from the conversation alone, so that a run may go
on in another process.
"""

import json

from purra_sdk import Plugin, model
from purra_sdk.items import content, finish, tool_call, usage


@model("rules")
class Rules:
    def profile(self, call):
        return {"window": 16_000, "output_limit": 1_000, "features": ["tools"]}

    def generate(self, call, request):
        prompt = [said["content"] for said in request["messages"] if said["role"] == "user"][-1]
        results = [said["content"] for said in request["messages"] if said["role"] == "tool"]
        step = next_call(prompt, results)
        if isinstance(step, str):
            yield content(step)
            yield finish("stop")
        else:
            name, arguments = step
            yield tool_call(0, f"call-{len(results)}", name, json.dumps(arguments))
            yield finish("tool_calls")
        yield usage(len(request["messages"]), 1)


def next_call(prompt, results):
    if not results:
        return "alerts", {}
    alert = next((one for one in json.loads(results[0]) if one["id"] in prompt), None)
    if alert is None:
        return "There is no such alert, so there is no verdict."
    if len(results) == 1:
        return "runbook", {"kind": alert["kind"]}
    severity = "page" if "page somebody" in results[1] else "info"
    if len(results) == 2:
        text = f"{alert['service']}: {alert['kind']} since {alert['since']}.\n{results[1]}"
        return "file_note", {"alert": alert["id"], "severity": severity, "text": text}
    filed = '"filed"' in results[2]
    return "verdict", {"alert": alert["id"], "severity": severity, "filed": filed}


plugin = Plugin(models=[Rules])
