# SPDX-License-Identifier: Apache-2.0
"""Names of functions as people write them: `std::map<int, Session*>::find`, not what a demangler spells out.

std::vector<Session, std::allocator<Session> >::_M_grow(unsigned long) [clone .cold]   std::vector<Session>::_M_grow
std::pair<int, int> best<int>(std::__cxx11::basic_string<char, ...> const&)            best<int>
alloc::raw_vec::RawVec<T,A>::grow_one::h0123456789abcdef                              alloc::raw_vec::RawVec<T,A>::grow_one
github.com/them/server/cache.(*Cache).Add.abi0                                         cache.(*Cache).Add
LazyCompile:*handle /app/server.js:12:3                                                handle
"""

from __future__ import annotations

import re
from functools import lru_cache

_OPEN, _CLOSE = "<([{", ">)]}"
_DEEPEST = 64  # brackets in brackets that are looked at; what is in more of them stays as it is
_LONGEST = 4096  # characters that are looked at: a stranger's file may have longer ones

# What a compiler adds to the name of a part or a copy of a function. Names are anybody's: here and below a text can be
# repeated in one way only, or a short name takes years.
_COPY = re.compile(
    r"(?:\s*\[clone [^\]]*\]|\s*\(\.[\w.]+\)|\[abi:\w+\]|@plt|@@?[A-Z][\w.]*[\d.]|"
    r"\.(?:cold|isra|constprop|part|lto_priv|localalias|llvm|abi\d|warm|hot|stkstart)(?:\.?\d)*)+(?=$|\s|\()"
)
_INLINE_NAMESPACES = re.compile(r"\b(std::)(?:__cxx11::|__1::|__2::|__ndk1::|_V2::|__debug::|chrono::_V2::)")
_ANONYMOUS = re.compile(
    r"\(anonymous namespace\)::|`anonymous namespace'::|\(anonymous class\)::|_GLOBAL__N_1::"
)
_RUST_HASH = re.compile(r"::h[0-9a-f]{16}$")
_RUST_CRATE = re.compile(r"(?<=\w)\[[0-9a-f]{1,16}\]")
_RUST_ESCAPE = re.compile(r"\$(?:u([0-9a-f]{1,6})|([A-Z]{1,2}))\$")
_RUST_ESCAPES = {"SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ","}
_CLOSURE = re.compile(r"(?:::\{\{?closure(?:#\d+)?\}?\})+$")  # of a function: what it asks is asked by that
_LAMBDA = re.compile(r"\{lambda\(.*?\)#\d+\}|'lambda\d*'(?:\([^)]*\))?|\$_\d+")
_GO_PATH = re.compile(r"^(?:[\w.~%-]+/)+(?=[\w%-]+\.)")
_SCRIPT = re.compile(
    r"^(?:JS|LazyCompile|Function|Script|Eval|Callback|RegExp|py)::?\s*[~*^+]*(?P<function>[^\s:]*)"
    r"(?:[ :](?P<file>\S.*?):(?P<line>\d+)(?::\d+)?)?$"
)

# Default arguments that nobody writes, and of which class template: "": of any. `Container`: the adaptor's.
_DEFAULTS = {
    "std::allocator": "",
    "std::pmr::polymorphic_allocator": "",
    "std::char_traits": "",
    "std::less": "std::",
    "std::hash": "std::",
    "std::equal_to": "std::",
    "std::default_delete": "std::",
    "std::deque": "std::queue std::stack",
    "std::vector": "std::priority_queue",
}
_SHORT = {
    "std::basic_string<char>": "std::string",
    "std::basic_string<wchar_t>": "std::wstring",
    "std::basic_string<char8_t>": "std::u8string",
    "std::basic_string<char16_t>": "std::u16string",
    "std::basic_string<char32_t>": "std::u32string",
    "std::basic_string_view<char>": "std::string_view",
    "std::basic_string_view<wchar_t>": "std::wstring_view",
    **{
        f"std::basic_{name}<char>": f"std::{name}"
        for name in (
            "ios",
            "istream",
            "ostream",
            "iostream",
            "ifstream",
            "ofstream",
            "fstream",
            "istringstream",
            "ostringstream",
            "stringstream",
            "streambuf",
            "stringbuf",
            "filebuf",
            "regex",
        )
    },
}
_OPERATOR = re.compile(
    r"operator(?:\(\)|\[\]|<=>|<<=|>>=|->\*|->|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%^&|]=|[-+*/%^&|~!=<>,]|"
    r"\"\"\s*\w+|\s+(?:new|delete)(?:\[\])?|\s+co_await)"
)


@lru_cache(maxsize=1 << 16)
def function_name(name: str) -> str:
    """Its qualified name: without what it returns and takes, without default template arguments."""
    text = name[:_LONGEST]
    script = _SCRIPT.match(text)
    if script:
        return script["function"] or "(anonymous)"
    text = _COPY.sub("", text)
    if "/" in text and "::" not in text and " " not in text:  # Go has the package's path before its name
        return _GO_PATH.sub("", text)
    if text.startswith("_") and "::" not in text and "(" not in text:
        return text
    text = _RUST_CRATE.sub("", _RUST_HASH.sub("", text))
    if "$" in text and _RUST_ESCAPE.search(text):
        text = _RUST_ESCAPE.sub(_unescaped, text).replace("..", "::")
        text = re.sub(r"(^|::)_(?=[<{])", r"\1", text)
    text = _CLOSURE.sub("", text) or text
    if not text.endswith(")") and "(" not in text and "<" not in text:
        return text
    if ".(*" in text or ".(" in text and "::" not in text:  # a method in Go
        return text
    if (
        text.startswith("<") or "{{" in text
    ):  # Rust, which says neither what a function returns nor what it takes
        return text
    text = types_as_written(_qualified(_LAMBDA.sub("{lambda}", _ANONYMOUS.sub("", text))))
    return text.removesuffix("::operator()") if text.endswith("{lambda}::operator()") else text or name


def _unescaped(match: re.Match[str]) -> str:
    if match[1]:
        code = int(match[1], 16)
        return chr(code) if code < 0x110000 else match[0]
    return _RUST_ESCAPES.get(match[2], match[0])


def script_place(name: str) -> tuple[str, int]:
    """File and line of a function that a just-in-time compiler named; "" and 0 for others."""
    script = _SCRIPT.match(name[:_LONGEST])
    return (script["file"] or "", int(script["line"] or 0)) if script else ("", 0)


def types_as_written(text: str) -> str:
    """A type or a qualified name without default template arguments, its inline namespaces left out."""
    text = _INLINE_NAMESPACES.sub(r"\1", text)
    if "<" not in text:
        return text
    written, rest = _written(text, 0, 0)
    return written + text[rest:]


def _written(text: str, at: int, depth: int) -> tuple[str, int]:
    """From `at` to the bracket that closes it, with the arguments of templates as people write them; and where it is."""
    out = ""
    while at < len(text):
        operator = _OPERATOR.match(text, at) if text.startswith("operator", at) else None
        if operator:
            out += operator[0]
            at = operator.end()
            continue
        character = text[at]
        if character == "<" and depth < _DEEPEST and out and (out[-1].isalnum() or out[-1] in "_:"):
            arguments, at = _arguments(text, at + 1, depth + 1)
            begin = _begin_of_name(out)
            template = out[begin:]
            while len(arguments) > 1 and _is_default(template, arguments[-1]):
                arguments.pop()
            made = f"{template}<{', '.join(arguments)}>"
            out = out[:begin] + _SHORT.get(made, made)
            continue
        if character in ">)]}" and depth > 0 or character == "," and depth > 0:
            return out, at
        if character in "([{" and depth < _DEEPEST:
            inner, at = _group(text, at, depth)
            out += inner
            continue
        out += character
        at += 1
    return out, at


def _arguments(text: str, at: int, depth: int) -> tuple[list[str], int]:
    found = []
    while at <= len(text):
        argument, at = _written(text, at, depth)
        found.append(argument.strip())
        if at >= len(text) or text[at] != ",":
            return found, at + 1
        at += 1
    return found, at


def _group(text: str, at: int, depth: int) -> tuple[str, int]:
    """What stands in round, square or curly brackets, with them."""
    out, at = text[at], at + 1
    while at < len(text):
        inner, at = _written(text, at, depth + 1)
        out += inner
        if at >= len(text):
            break
        out += text[at]
        at += 1
        if out[-1] != ",":
            break
    return out, at


def _begin_of_name(text: str) -> int:
    at = len(text)
    while at > 0 and (text[at - 1].isalnum() or text[at - 1] in "_:"):
        at -= 1
    return at


def _is_default(template: str, argument: str) -> bool:
    of = _DEFAULTS.get(argument.split("<", 1)[0])
    return (
        of is not None and ("<" in argument) and any(template.startswith(one) for one in of.split() or [""])
    )


def _qualified(text: str) -> str:
    """Of "int f<int>(char) const" f<int>: the last word outside of brackets, without its parameters."""
    out: list[str] = []  # what stands outside of round brackets
    depth = 0
    begin = 0  # of the last word, in `out`
    at = 0
    converts = False
    while at < len(text):
        operator = _OPERATOR.match(text, at) if text.startswith("operator", at) else None
        if operator and depth == 0:
            out.append(operator[0])
            at = operator.end()
            at += text.startswith(" <", at)  # "operator<< <char>"
            continue
        if depth == 0 and text.startswith("operator ", at):  # to a type: the rest is its name
            converts = True
        character = text[at]
        if depth == 0 and character == "(":
            end = _end_of_group(text, at)
            after = text[end : end + 2]
            if after == "::" or not out or _is_tail(text[end:]):
                if not out and after != "::":  # Rust's "(A, B) as T", or nothing that is known
                    out.append(text[at:end])
                at = end
                continue
            out.append(text[at:end])
            at = end
            continue
        if character in "<{[" and not (character == "<" and text.startswith("<=", at)):
            depth += 1
        elif character in ">}]" and depth > 0 and text[at - 1 : at] != "-":
            depth -= 1
        if depth == 0 and character == " ":
            if _is_tail(text[at:]):
                break
            begin = begin if converts else len(out) + 1
        out.append(character)
        at += 1
    return "".join(out[begin:]).strip()


_TAIL = re.compile(r"(?:\s*(?:const|volatile|&|noexcept|\[clone [^\]]*\]))*\s*$")


def _is_tail(text: str) -> bool:
    return _TAIL.match(text) is not None


def _end_of_group(text: str, at: int) -> int:
    depth = 0
    for index in range(at, len(text)):
        if text[index] == "(":
            depth += 1
        elif text[index] == ")":
            depth -= 1
            if depth == 0:
                return index + 1
    return len(text)


def shortened_name(name: str, most: int) -> str:
    """At most so many characters: arguments of templates go first, then what is outermost of the namespaces."""
    if len(name) <= most:
        return name
    if name.startswith("<"):  # Rust's <Type as Trait>::function
        flat = re.sub(r"(?:\w+::)+(?=\w)", "", name.rpartition("::")[0]) + "::" + name.rpartition("::")[2]
        return flat if len(flat) <= most else f"{flat[: most - 3]}..."
    flat = _without_arguments(name)
    if len(flat) <= most:
        return flat
    parts = flat.split("::")
    while len(parts) > 2 and len("::".join(parts)) > most:
        parts.pop(0)
    text = "::".join(parts)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _without_arguments(name: str) -> str:
    out, depth = "", 0
    at = 0
    while at < len(name):
        operator = _OPERATOR.match(name, at) if name.startswith("operator", at) else None
        if operator and depth == 0:
            out += operator[0]
            at = operator.end()
            continue
        if name[at] == "<" and (depth or out and (out[-1].isalnum() or out[-1] in "_:")):
            depth += 1
            out += "<...>" if depth == 1 else ""
        elif name[at] == ">" and depth:
            depth -= 1
        elif not depth:
            out += name[at]
        at += 1
    return out
