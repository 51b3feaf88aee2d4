"""Removes secrets from what is shown of a configuration.

Keys are never in a configuration, which names the variables that have them. But addresses, arguments of programs and
pasted values can have secrets, and so can the text of an error. The forms of secrets cannot be listed, so of an
argument, of the path of an address and of the name of a variable only known harmless parts are shown.
"""

import re
from collections.abc import Mapping
from typing import Any

MASK = "***"

_MIN_SECRET = 6
"""Shorter values of variables are words that occur everywhere."""

_SECRET_NAME = re.compile(r"key|token|secret|passw|auth|credential|cookie|session", re.IGNORECASE)
_KNOWN_FORM = re.compile(r"\b(?:sk|pk|rk|gh[a-z]|github_pat|xox[a-z]|glpat|AKIA|AIza|eyJ)[-_A-Za-z0-9.]{10,}")
_BEARER = re.compile(r"\b(Bearer|Basic)\s+\S+", re.IGNORECASE)
_ANY_ADDRESS = re.compile(r"(\w+://)([^/?#\s\"'<>]*)([^?#\s\"'<>]*)(?:([?#])(\S*))?")
"""Its groups are scheme, user and host, path, and the first character of the query or the fragment with the rest."""
_HARMLESS_SEGMENT = re.compile(
    r"|v[0-9]{1,2}(alpha|beta)?|api|mcp|sse|openai|anthropic|inference|compatible-mode|paas|traces|metrics|logs|otlp"
)
_HARMLESS_ARGUMENT = re.compile(
    r"--?|-[A-Za-z]|--[a-z]+(-[a-z]+)*"  # only the name of an option
    r"|[0-9]{1,5}|true|false|on|off|yes|no|\.{1,2}"
    r"|@[a-z]+(-[a-z]+)*/[a-z]+(-[a-z]+)*(@[0-9]+(\.[0-9]+){0,2}|@latest)?",  # an npm package
)
_OPTION_WITH_VALUE = re.compile(r"(--[a-z]+(?:-[a-z]+)*=).+", re.DOTALL)
_ADDRESS = re.compile(r"https?://[^\s\"'<>]+")
_VARIABLE = re.compile(r"_?[A-Z]+[0-9]{0,2}(_+([A-Z]+[0-9]{0,2}|[0-9]{1,2}))*_?")

_NAMES_OF_VARIABLES = frozenset({"env", "api_key_env", "headers_env"})
"""Keys whose values are names of variables."""


class Masking:
    """Masks the secrets of an environment, and what looks like one."""

    def __init__(self, environ: Mapping[str, str], names: frozenset[str] = frozenset()) -> None:
        """Takes the environment, and the names of the variables whose values the configuration uses as secrets."""
        values = {
            value
            for name, value in environ.items()
            if len(value) >= _MIN_SECRET and (name in names or _SECRET_NAME.search(name))
        }
        self._values = sorted(values, key=len, reverse=True)
        self._names = frozenset(environ)

    def text(self, text: str) -> str:
        """Returns a text without secrets, and without the paths of addresses except common parts."""
        for value in self._values:
            text = text.replace(value, MASK)
        if "://" in text:
            text = _ANY_ADDRESS.sub(_masked_address, text)
        return _BEARER.sub(rf"\1 {MASK}", _KNOWN_FORM.sub(MASK, text))

    def variable(self, name: str) -> str:
        """Returns the name of a variable, masked if it is not set and does not look like a name: it may be a pasted
        key.
        """
        return name if not name or name in self._names or _VARIABLE.fullmatch(name) else MASK

    def argument(self, argument: str) -> str:
        """Returns an argument of a program with only option names, numbers, packages and the hosts of addresses."""
        if _HARMLESS_ARGUMENT.fullmatch(argument):
            return self.text(argument)
        if _ADDRESS.fullmatch(argument):
            return self.text(argument)
        return _OPTION_WITH_VALUE.sub(rf"\1{MASK}", argument) if _OPTION_WITH_VALUE.fullmatch(argument) else MASK

    def value(self, key: str, value: Any) -> Any:
        """Returns a value of a key without secrets; lists and tables are masked element by element."""
        name = key.rpartition(".")[2]
        mask = self.variable if name in _NAMES_OF_VARIABLES else self.text
        match value:
            case str():
                return mask(_program(value) if name == "command" else value)
            case dict() if name in _NAMES_OF_VARIABLES:
                return {one: mask(inner) for one, inner in value.items()}
            case dict():
                return {self.text(one): self.value(f"{key}.{one}", inner) for one, inner in value.items()}
            case list():
                return [self.argument(one) if name == "args" else self.value(key, one) for one in value]
        return value


def _masked_address(address: re.Match[str]) -> str:
    scheme, host, path, begin, rest = address.groups(default="")
    _, at, host = host.rpartition("@")
    if "@" in path + rest:  # a password may have any character, so everything before may be part of it
        at, host = "", MASK
    path = "/".join(one if _HARMLESS_SEGMENT.fullmatch(one) else MASK for one in path.split("/"))
    return scheme + (at and f"{MASK}@") + host + path + begin + (rest and MASK)


def _program(command: str) -> str:
    """Returns the first word of a command, which should be its only one."""
    program, *arguments = command.split(maxsplit=1) or [""]
    return f"{program} {MASK}" if arguments else program
