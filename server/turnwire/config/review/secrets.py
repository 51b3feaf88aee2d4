"""Takes secrets out of what is shown of a configuration.

Keys are never in a configuration, which names the variables that hold them. But addresses, arguments of programs and
pasted values can hold secrets, and so can the text of an error.
"""

import re
from collections.abc import Mapping
from typing import Any

MASK = "***"

_MIN_SECRET = 6
"""Shorter values of variables are words that occur everywhere."""

_SECRET_NAME = re.compile(r"key|token|secret|passw|auth|credential|cookie|session", re.IGNORECASE)
_USER = re.compile(r"(\w+://)[^/@\s]*@")
_QUERY = re.compile(r"([?&;][^=&;#\s]+=)[^&;#\s]+")
_KNOWN_FORM = re.compile(r"\b(?:sk|pk|rk|gh[a-z]|github_pat|xox[a-z]|glpat|AKIA|AIza|eyJ)[-_A-Za-z0-9.]{10,}")
_BEARER = re.compile(r"\b(Bearer|Basic)\s+\S+", re.IGNORECASE)
_ASSIGNMENT = re.compile(
    r"([\w-]*(?:key|token|secret|passw|auth|credential|cookie)[\w-]*\s*[=:]\s*)[^\s,;]+", re.IGNORECASE
)
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")

_NAMES_OF_VARIABLES = frozenset({"env", "api_key_env", "headers_env"})
"""Keys whose values are names of variables."""


class Masking:
    """Masks the secrets that an environment holds, and what looks like one."""

    def __init__(self, environ: Mapping[str, str], names: frozenset[str] = frozenset()) -> None:
        """Takes the environment, and the names of the variables whose values the configuration uses as secrets."""
        values = {
            value
            for name, value in environ.items()
            if len(value) >= _MIN_SECRET and (name in names or _SECRET_NAME.search(name))
        }
        self._values = sorted(values, key=len, reverse=True)

    def text(self, text: str) -> str:
        """Returns a text without secrets."""
        for value in self._values:
            text = text.replace(value, MASK)
        if "://" in text:
            text = _QUERY.sub(rf"\1{MASK}", _USER.sub(rf"\1{MASK}@", text))
        return _BEARER.sub(rf"\1 {MASK}", _KNOWN_FORM.sub(MASK, text))

    def variable(self, name: str) -> str:
        """Returns the name of a variable; a name that is not in capitals may be a pasted key, and is masked."""
        return name if _VARIABLE.fullmatch(name) or not name else MASK

    def arguments(self, arguments: list[str]) -> list[str]:
        """Returns the arguments of a program without the values of those whose name speaks of a secret."""
        shown, hides_next = [], False
        for argument in arguments:
            is_option = argument.startswith("-")
            shown.append(MASK if hides_next and not is_option else self.text(_ASSIGNMENT.sub(rf"\1{MASK}", argument)))
            hides_next = is_option and "=" not in argument and _SECRET_NAME.search(argument) is not None
        return shown

    def value(self, key: str, value: Any) -> Any:
        """Returns a value of a key without secrets; lists and tables are masked element by element."""
        name = key.rpartition(".")[2]
        mask = self.variable if name in _NAMES_OF_VARIABLES else self.text
        match value:
            case str():
                return mask(value)
            case dict() if name in _NAMES_OF_VARIABLES:
                return {one: mask(inner) for one, inner in value.items()}
            case dict():
                return {self.text(one): self.value(f"{key}.{one}", inner) for one, inner in value.items()}
            case list():
                return self.arguments(value) if name == "args" else [self.value(key, inner) for inner in value]
        return value
