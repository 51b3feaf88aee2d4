"""Random messages as Maria writes them."""

from hypothesis import strategies as st

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ID = st.text("abc123_-", min_size=1, max_size=6)


def content() -> st.SearchStrategy[object]:
    """Returns contents in the one spelling that is written: a text, or an array of none or several."""
    part = st.builds(lambda text: {"type": "text", "text": text}, TEXT)
    return TEXT | st.lists(part, max_size=4).filter(lambda parts: len(parts) != 1)


def tool_call() -> st.SearchStrategy[dict[str, object]]:
    """Returns tool calls; arguments are any text."""
    function = st.fixed_dictionaries({"name": ID, "arguments": TEXT})
    return st.fixed_dictionaries({"id": ID, "type": st.just("function"), "function": function})


def message() -> st.SearchStrategy[dict[str, object]]:
    """Returns messages of every role."""
    spoken = st.fixed_dictionaries({"role": st.sampled_from(["system", "user"]), "content": content()})
    assistant = st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": content().filter(lambda value: value != [])},
        optional={"tool_calls": st.lists(tool_call(), min_size=1, max_size=3)},
    )
    tool = st.fixed_dictionaries({"role": st.just("tool"), "content": TEXT, "tool_call_id": ID})
    return spoken | assistant | tool


def usage() -> st.SearchStrategy[dict[str, object]]:
    """Returns usage with and without cached tokens."""

    def of(fresh: int, cached: int | None, completion: int) -> dict[str, object]:
        prompt = fresh + (cached or 0)
        counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        return counts if cached is None else {**counts, "prompt_tokens_details": {"cached_tokens": cached}}

    count = st.integers(0, 10**9)
    return st.builds(of, count, st.none() | count, count)
