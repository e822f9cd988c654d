"""How a call of the script becomes a call of an agent's own tool.

The script knows three tools: `read` a path, `edit` a path from an old text to a new one, and `run` a command.
"""

import shlex
from typing import Any

import orjson
from upstreams.scripted import Call

Tools = list[dict[str, Any]]

NAMES = {
    "read": ("read", "read_file", "Read"),
    "edit": ("edit", "replace", "Edit"),
    "run": ("bash", "run_shell_command", "shell", "Bash"),
}
PARAMETERS = {
    "path": ("filePath", "file_path", "absolute_path", "path"),
    "old": ("oldString", "old_string"),
    "new": ("newString", "new_string"),
    "command": ("command",),
}
OTHERS = {"string": "as the task says", "boolean": False, "integer": 1000, "number": 1000}
"""Values for required parameters of a tool that the script does not know."""


def fit_by_name(call: Call, tools: Tools) -> Call:
    """The call in terms of a tool of another name with other names of parameters."""
    offered = {tool["name"]: tool for tool in (tool.get("function", tool) for tool in tools)}
    name = next(name for name in NAMES[call.name] if name in offered)
    schema = offered[name].get("parameters") or offered[name]["input_schema"]
    known = schema["properties"]
    arguments = {next(key for key in PARAMETERS[ours] if key in known): it for ours, it in call.arguments.items()}
    missing = [key for key in schema.get("required", ()) if key not in arguments]
    return Call(name, arguments | {key: OTHERS[known[key]["type"]] for key in missing})


def fit_codex(call: Call, tools: Tools) -> Call:
    """The call in terms of Codex: commands and patches. Newer models write programs that make these calls."""
    offered = {tool.get("name") for tool in tools}
    if call.name == "edit":
        patch = _write_patch(**call.arguments)
        program = f"text(await tools.apply_patch({orjson.dumps(patch).decode()}));"
        return Call("exec", program) if "exec" in offered else Call("apply_patch", patch)
    command = call.arguments.get("command") or f"cat {shlex.quote(call.arguments['path'])}"
    if "exec" not in offered:
        return Call("exec_command", {"cmd": command})
    program = f"const ended = await tools.exec_command({orjson.dumps({'cmd': command}).decode()});\ntext(ended.output);"
    return Call("exec", program)


def _write_patch(path: str, old: str, new: str) -> str:
    lines = ("*** Begin Patch", f"*** Update File: {path}", "@@", f"-    {old}", f"+    {new}", "*** End Patch")
    return "\n".join(lines)
