"""Hooks of mkdocs: adds the references of the API and the command line, leads links to the repository, writes llms.txt.

Run by `make docs`. Every page is in the site as Markdown too, beside its HTML.
"""

import json
import logging
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

_ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(_ROOT))

# mkdocs runs this file from anywhere
from docs.reference.api import api_pages  # noqa: E402
from docs.reference.cli import command_line  # noqa: E402
from docs.reference.openapi import openapi  # noqa: E402

_COMMAND_LINE = "reference/cli.md"
_LINK = re.compile(r"\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
_WARN = logging.getLogger("mkdocs.hooks").warning
"""A warning ends a strict build."""
_written: dict[str, str] = {}
"""The Markdown of each page, by its path in docs/."""


def on_config(config: Any) -> Any:
    """Puts the command line and the packages of the API into the menu, under Reference."""
    [reference] = [entry["Reference"] for entry in config["nav"] if "Reference" in entry]
    reference.append({"Command line": _COMMAND_LINE})
    reference.append({"API": [{name.rpartition("/")[2].removesuffix(".md"): name} for name in api_pages()]})
    return config


def on_files(files: Any, *, config: Any) -> Any:
    """Adds the pages of the API, which are made of `proto/`, its form for JSON, and the command line."""
    files.append(File.generated(config, "reference/openapi.json", content=json.dumps(openapi(), indent=1)))
    for name, text in {_COMMAND_LINE: command_line(), **api_pages()}.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Leads links to files outside docs/ to the repository, and keeps the text."""
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def outside(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link["target"]))
        if "://" in link["target"] or path.startswith("docs/"):
            return link[0]
        if not (_ROOT / path).exists():
            _WARN("%s: %s is not there", page.file.src_uri, link["target"])
        kind = "tree" if (_ROOT / path).is_dir() else "blob"
        return f"]({config['repo_url']}/{kind}/main/{path}{link['anchor'] or ''})"

    _written[page.file.src_uri] = text = _LINK.sub(outside, markdown)
    return text


def on_post_build(*, config: Any) -> None:
    """Writes each page as Markdown, and a list of them for programs."""
    site = Path(config["site_dir"])
    for name, text in _written.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text, "utf-8")
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}: each page of the documents as Markdown."]
    lines += _listed(config["nav"], "Pages")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", "utf-8")


def _listed(entries: list[Any], title: str) -> list[str]:
    """Returns a heading and the links of its pages, then those of the parts below it."""
    below: list[str] = []
    lines = ["", f"## {title}", ""]
    for entry in entries:
        for name, target in entry.items():
            if isinstance(target, list):
                below += _listed(target, name)
            else:
                lines.append(f"- [{name}]({target})")
    return (lines if len(lines) > 3 else []) + below
