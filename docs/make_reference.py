# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference/ from what the code itself says: the command line, Python, C, policies, settings; the man page
and what completes the command line in shells, which the wheel installs.

.venv/bin/python docs/make_reference.py           write what has changed
.venv/bin/python docs/make_reference.py --check   exit 1 where a file is not what would be written
"""

import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import click
from click.shell_completion import get_completion_class
from memoir.views.simulation_table import listed_settings

from memoir import __version__, _core, cli, malloc

FOLDER = Path(__file__).parent / "reference"
NOTE = "<!-- written by docs/make_reference.py: change the code, then run it -->\n"
PYTHON = {
    "memoir": None,
    "memoir.torch": None,
    "memoir.bench": [
        "run",
        "read",
        "analyse",
        "Experiment",
        "Options",
        "Grid",
        "Program",
        "Metric",
        "Result",
    ],
    "memoir.malloc": ["library", "settings", "environment", "figures"],
    "memoir.sweep": ["sweep", "Sweep", "Outcome"],
    "memoir.views.page": None,
    "memoir.executorch": None,
    "memoir.tinygrad": None,
    "memoir.inductor": None,
    "memoir.onnxruntime": None,
}
HEADERS = {  # under src/memoir: what it is, and how to link it
    "plan/c/memoir_plan.h": ("The planners", "CMake `memoir::plan_c`, pkg-config `memoir-plan-c`"),
    "static_tensors/c/memoir_static_tensors.h": (
        "Tensors over host memory without malloc",
        "CMake `memoir::static_tensors`, pkg-config `memoir-static-tensors`",
    ),
    "remember/onnxruntime/memoir_onnxruntime.h": (
        "An allocator for ONNX Runtime",
        "`memoir.onnxruntime.include()` and `library()` of the Python package",
    ),
}


def commands() -> dict[str, click.Command]:
    return {verb: importlib.import_module(f"memoir.cli.{verb}").command for verb in cli.VERBS}


def help_of(verb: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"memoir {verb}", terminal_width=96, max_content_width=96)
    lines = [line.rstrip() for line in command.get_help(context).splitlines()]
    return "\n".join(lines).rstrip()


SHARED = {
    "--help": "Every verb takes `-h`, which is one screen, and",
    "--yes": "Verbs that read files of others take",
}


def option_in(text: str, option: str) -> tuple[str, str]:
    """An option's lines in a verb's help, and what they say; empty where it is not there."""
    match = re.search(rf"^ +{option}  .*\n?(?: {{10,}}.*\n?)*", text, re.MULTILINE)
    return (match[0], " ".join(match[0].split()).removeprefix(option).strip()) if match else ("", "")


def command_page() -> str:
    """Each verb's help. What most say of an option of SHARED in the same words stands once, at the top."""
    helps = {verb: help_of(verb, command) for verb, command in commands().items()}
    shared = {}
    for option in SHARED:
        said = [option_in(text, option)[1] for text in helps.values()]
        shared[option] = max(set(said) - {""}, key=said.count)
    text = [f"{NOTE}\n# The command line\n"]
    text += [f"{words} `{option}`: {shared[option]}\n" for option, words in SHARED.items()]
    text += [f"* [`memoir {verb}`](#memoir-{verb}): {what}" for verb, what in cli.VERBS.items()]
    for verb, shown in helps.items():
        for option in SHARED:
            lines, said = option_in(shown, option)
            if said == shared[option]:
                shown = shown.replace(lines, "").rstrip()
        text.append(f"\n## memoir {verb}\n\n```text\n{shown}\n```")
    return "\n".join(text) + "\n"


def policy_page() -> str:
    simulated, on_device = (
        {name for name, *_ in _core.policies(substrate)} for substrate in ("simulation", "device")
    )
    text = [
        f"{NOTE}\n# Policies\n",
        "A policy is written `name,setting=value,...`, wherever one is asked for: `memoir simulate --policy`, "
        "`use_pool`, `memoir run --pool`.\n",
    ]
    own, shared = listed_settings(_core.policies())
    for name, what, _ in _core.policies():
        where = [word for word, names in (("simulation", simulated), ("GPU", on_device)) if name in names]
        text.append(f"## {name}\n\n{what}. In: {', '.join(where) or 'the malloc'}.\n")
        if own[name]:
            text.append("| setting | unit | initial | what |\n|---|---|---|---|")
            text += [f"| {' | '.join(cells(setting))} |" for setting in own[name]]
            text.append("")
    text.append("## Settings of several policies\n")
    text.append("| setting | unit | initial | what | of |\n|---|---|---|---|---|")
    text += [
        f"| {' | '.join(cells(setting))} | {', '.join(names)} |"
        for names, settings in shared.items()
        for setting in settings
    ]
    text.append("")
    return "\n".join(text).rstrip() + "\n"


def cells(setting: tuple) -> list[str]:
    """Name, unit, initial value, what it is: as the bindings give a setting."""
    name, *rest = (str(part).replace("|", "\\|") for part in setting[:4])
    return [f"`{name}`", *rest]


def malloc_page() -> str:
    text = [
        f"{NOTE}\n# Settings of memoir's malloc\n",
        '`memoir run --set name=value`, or `MEMOIR_MALLOC="name=value,..."` in the environment.\n',
        "| setting | unit | initial | effect |\n|---|---|---|---|",
    ]
    text += [
        f"| `{one.name}` | {one.unit} | {one.initial} | {one.help} |" for one in malloc.settings().values()
    ]
    return "\n".join(text) + "\n"


def python_page() -> str:
    text = [f"{NOTE}\n# Python\n"]
    for name, chosen in PYTHON.items():
        module = importlib.import_module(name)
        text.append(f"## {name}\n\n{paragraphs(module.__doc__, first=True)}\n")
        for member in chosen or sorted(module.__all__, key=str.lower):
            thing = getattr(module, member)
            if not callable(thing) or not inspect.getdoc(thing):
                continue
            form, documented = told(member, thing)
            text.append(f"### {name}.{member}\n\n```python\n{form}\n```\n")
            text.append(f"{paragraphs(documented)}\n")
            if inspect.isclass(thing):
                text += members(thing)
    return "\n".join(text).rstrip() + "\n"


def members(thing: type) -> list[str]:
    found = []
    for name, member in vars(thing).items():
        if name.startswith("_") or not (callable(member) or isinstance(member, property)):
            continue
        if inspect.getdoc(member):
            property_of = isinstance(member, property)
            form, documented = (name, inspect.getdoc(member)) if property_of else told(name, member)
            form = re.sub(r"\(self(?:, )?", "(", form)
            found.append(f"* `{' '.join(form.split())}`: {' '.join(documented.split())}")
    return [*found, ""] if found else []


def told(name: str, thing: object) -> tuple[str, str]:
    """How it is called, and what it does. What the core has begins its docstring with the former."""
    form, documented = signature(name, thing), inspect.getdoc(thing) or ""
    first, _, rest = documented.partition("\n")
    if form == f"{name}(...)" and first.startswith(f"{name}(") and rest.strip():
        form = re.sub(r"ndarray\[dtype=(\w+)[^\]]*\]", r"ndarray[\1]", first.replace("memoir._core.", ""))
        documented = rest.strip()
    return form, documented


def signature(name: str, thing: object) -> str:
    try:
        text = re.sub(r" at 0x[0-9a-f]+", "", str(inspect.signature(thing)))
    except (TypeError, ValueError):  # of the core: its docstring begins with it
        return f"{name}(...)"
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)  # annotations, which are not evaluated
    if len(name + text) <= 90:
        return name + text
    inside, result = split_arguments(text)
    return name + "(\n" + "".join(f"    {one},\n" for one in inside) + ")" + result


def split_arguments(text: str) -> tuple[list[str], str]:
    """'(a: dict[int, str], b) -> c' -> its arguments, and ' -> c'."""
    depth, begin, found = 0, 1, []
    for i, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if (letter == "," and depth == 1) or depth == 0:
            found.append(text[begin:i].strip())
            begin = i + 1
        if depth == 0:
            return [one for one in found if one], text[i + 1 :]
    return found, ""


def paragraphs(text: str | None, first: bool = False) -> str:
    """A docstring as Markdown: what is indented deeper is code."""
    text = inspect.cleandoc(text or "")
    text = re.sub(
        r"^((?:    .*\n?|\n(?=    ))+)",
        lambda code: f"```\n{inspect.cleandoc(code[1])}\n```\n",
        text,
        flags=re.M,
    )
    return text.split("\n\n")[0] if first else text


def c_page() -> str:
    """The public headers for C: their first comment as prose, and what they declare as it stands there."""
    text = [
        f"{NOTE}\n# C\n",
        "Three headers for C, and for every language that can call C. How to build and link:",
    ]
    text += [
        "[docs/README.md](../README.md#install-build-link); the planners have [a guide](../guides/plan-c.md).\n"
    ]
    for name, (what, how) in HEADERS.items():
        header = (FOLDER.parents[1] / "src" / "memoir" / name).read_text()
        first, body = header.removeprefix("/*").split("*/", 1)
        prose = re.sub(r"^ \* ?", "", first, flags=re.M).split("\n", 2)[2]  # without the licence
        prose = re.sub(
            r"(?:^  .*\n)+", lambda code: f"```c\n{inspect.cleandoc(code[0])}\n```\n", prose, flags=re.M
        )
        text.append(f"## {what}\n\n`#include <{Path(name).name}>`. {how}.\n\n{prose.rstrip()}\n")
        text.append(f"```c\n{declarations(body)}\n```\n")
    return "\n".join(text).rstrip() + "\n"


def declarations(body: str) -> str:
    """Of a header, without guards, macros for visibility, and the indentation that those lead to."""
    inside = re.split(r"^#ifdef __cplusplus\n.*?^#endif\n", body, flags=re.M | re.S)[1]
    inside = re.sub(r"^#define MEMOIR_\w+_API .*\n", "", inside, flags=re.M)
    inside = re.sub(r"\bMEMOIR_\w+_API\s+", "", inside)
    wrapped = re.sub(r"^\w[^/;{}]*\([^()]*\);", lambda call: wrapped_call(call[0]), inside, flags=re.M)
    return re.sub(r"\n{3,}", "\n\n", wrapped).strip()


def wrapped_call(call: str) -> str:
    """At most 100 columns, broken between arguments."""
    text = re.sub(r"(?<!,) ", "\0", " ".join(call.split()).replace("( ", "("))
    return textwrap.fill(text, 100, subsequent_indent="    ", break_on_hyphens=False).replace("\0", " ")


def exit_codes() -> list[str]:
    """The rows of docs/reference/exit-codes.md."""
    table = [
        line.strip("|").split("|")
        for line in (FOLDER / "exit-codes.md").read_text().splitlines()
        if line[:1] == "|"
    ]
    plain = [[cell.strip().replace("`", "").replace("*", "") for cell in row] for row in table[2:]]
    return [part for code, meaning, *_ in plain for part in (".TP", code, meaning)]


def man_page() -> str:
    def escaped(text: str) -> str:
        lines = text.replace("\\", "\\\\").replace("-", "\\-").splitlines()
        return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in lines)

    text = [
        f'.TH MEMOIR 1 "" "memoir {__version__}" "User commands"',
        ".SH NAME",
        "memoir \\- allocators that remember",
        ".SH SYNOPSIS",
        ".B memoir",
        "VERB [OPTIONS] ...",
        ".SH DESCRIPTION",
        "Records what programs allocate, plans and simulates it, and runs programs under allocators that remember.",
    ]
    for verb, command in commands().items():
        text += [f".SH MEMOIR {verb.upper()}", ".nf", escaped(help_of(verb, command)), ".fi"]
    text += [
        ".SH EXIT STATUS",
        *exit_codes(),
        ".SH SEE ALSO",
        "The guides in the project's docs folder.",
    ]
    return "\n".join(text) + "\n"


def completion(shell: str) -> Callable[[], str]:
    made = get_completion_class(shell)
    return lambda: made(click.Group("memoir"), {}, "memoir", "_MEMOIR_COMPLETE").source()


PAGES = {
    "commands.md": command_page,
    "policies.md": policy_page,
    "malloc-settings.md": malloc_page,
    "python.md": python_page,
    "c.md": c_page,
    "memoir.1": man_page,
    "completions/memoir": completion("bash"),
    "completions/_memoir": completion("zsh"),
    "completions/memoir.fish": completion("fish"),
}


def main() -> None:
    check = sys.argv[1:] == ["--check"]
    changed = []
    for name, make in PAGES.items():
        path, text = FOLDER / name, make()
        if not path.exists() or path.read_text() != text:
            changed.append(name)
            if not check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
    print(f"{'not up to date' if check else 'written'}: {', '.join(changed) or 'nothing'}")
    sys.exit(check and bool(changed))


if __name__ == "__main__":
    main()
