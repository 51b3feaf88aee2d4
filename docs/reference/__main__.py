"""Writes every generated document: `python -m docs.reference`."""

from docs.reference.documents import DOCS, documents


def main() -> None:
    """Writes what changed and names it."""
    for name, text in documents().items():
        file = DOCS / name
        if not file.exists() or file.read_text("utf-8") != text:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, "utf-8")
            print(f"docs/{name}")


if __name__ == "__main__":
    main()
