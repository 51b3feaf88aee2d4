"""Names of programming and markup languages by file name, for highlighting in user interfaces."""

from pathlib import PurePosixPath

_BY_SUFFIX = {
    "bash": "shell", "bat": "batch", "c": "c", "cc": "cpp", "clj": "clojure", "cpp": "cpp", "cs": "csharp",
    "css": "css", "csv": "csv", "cxx": "cpp", "dart": "dart", "diff": "diff", "el": "elisp", "elm": "elm",
    "erl": "erlang", "ex": "elixir", "exs": "elixir", "fish": "shell", "fs": "fsharp", "go": "go",
    "graphql": "graphql", "groovy": "groovy", "h": "c", "hh": "cpp", "hpp": "cpp", "hs": "haskell", "htm": "html",
    "html": "html", "ini": "ini", "java": "java", "jl": "julia", "js": "javascript", "json": "json",
    "jsonl": "json", "jsx": "javascript", "kt": "kotlin", "kts": "kotlin", "less": "less", "lua": "lua",
    "m": "objective-c", "md": "markdown", "mjs": "javascript", "ml": "ocaml", "mm": "objective-c", "nim": "nim",
    "nix": "nix", "patch": "diff", "php": "php", "pl": "perl", "proto": "protobuf", "ps1": "powershell",
    "py": "python", "pyi": "python", "r": "r", "rb": "ruby", "rs": "rust", "rst": "restructuredtext",
    "scala": "scala", "scss": "scss", "sh": "shell", "sql": "sql", "svelte": "svelte", "swift": "swift",
    "tcl": "tcl", "tex": "latex", "tf": "terraform", "toml": "toml", "ts": "typescript", "tsx": "typescript",
    "vue": "vue", "xml": "xml", "yaml": "yaml", "yml": "yaml", "zig": "zig", "zsh": "shell",
}  # fmt: skip

_BY_NAME = {
    "cmakelists.txt": "cmake", "dockerfile": "dockerfile", "gemfile": "ruby", "makefile": "make", "rakefile": "ruby",
}  # fmt: skip


def language_of(filename: str) -> str:
    """Returns the language for a file name, in lower case; "" when unknown."""
    path = PurePosixPath(filename.lower())
    return _BY_NAME.get(path.name) or _BY_SUFFIX.get(path.suffix.removeprefix("."), "")
