"""Questions of tools: forms with a JSON Schema in Turnwire, lists of questions with labels in OpenCode."""

import json
from typing import Any

from opencode.question.question_pb2 import Question
from turnwire_adapters.opencode.ids import shown
from turnwire_adapters.opencode.objects import Json, parsed

YES, NO = "Yes", "No"
DONE = "Done"
"""The label by which a person says that an address was opened."""


class AnswerError(ValueError):
    """An answer that the form cannot take; the message names the question."""


def question_json(question: Question) -> Json:
    """Returns a QuestionRequest: one question for each property of the form, in its order."""
    call = {"messageID": shown(question.message_id), "callID": question.tool_call_id}
    if question.WhichOneof("form") == "link":
        text = f"{question.prompt}\n{question.link.url}"
        asked = [_asked(text, question.source, [DONE], custom=False)]
    else:
        asked = [_field(question, name, schema) for name, schema in _properties(question).items()]
    return {"id": question.question_id, "sessionID": question.session_id, "questions": asked, "tool": call}


def values_of(question: Question, answers: Any) -> Json | None:
    """Returns what was filled in; None for a form without values, such as an address.

    Args:
        question: The question.
        answers: For each of its questions a list of labels or own words, as OpenCode's clients send them.

    Raises:
        AnswerError: they do not fit.
    """
    fields = _properties(question)
    wanted = len(fields) if question.WhichOneof("form") == "schema" else 1
    if not isinstance(answers, list) or len(answers) != wanted:
        raise AnswerError(f"answers: {wanted} lists of labels are needed")
    if question.WhichOneof("form") != "schema":
        return None
    values = {}
    for (name, schema), labels in zip(fields.items(), answers, strict=True):
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise AnswerError(f"answers: {name!r} needs a list of texts")
        if labels:
            values[name] = _value(name, schema, labels)
    return values


def _properties(question: Question) -> dict[str, Json]:
    found = parsed(question.schema.schema_json).get("properties")
    return {name: schema for name, schema in found.items() if isinstance(schema, dict)} if found else {}


def _field(question: Question, name: str, schema: Json) -> Json:
    text = "\n".join(part for part in (question.prompt, str(schema.get("description") or "")) if part)
    choices = _choices(schema)
    asked = _asked(text, str(schema.get("title") or name), list(choices), custom=not choices)
    return {**asked, "multiple": True} if schema.get("type") == "array" else asked


def _asked(text: str, header: str, labels: list[str], *, custom: bool) -> Json:
    options = [{"label": label, "description": ""} for label in labels]
    return {"question": text, "header": header[:30], "options": options, "custom": custom}


def _choices(schema: Json) -> dict[str, Any]:
    """Returns the values to choose from by their labels; {} when any word may be entered."""
    if schema.get("type") == "boolean":
        return {YES: True, NO: False}
    items = schema.get("items") if schema.get("type") == "array" else schema
    items = items if isinstance(items, dict) else {}
    titled = items.get("oneOf") or items.get("anyOf")
    if isinstance(titled, list):
        return {str(one.get("title") or one["const"]): one["const"] for one in titled if "const" in one}
    values, names = items.get("enum"), items.get("enumNames")
    if not isinstance(values, list):
        return {}
    shown_names = names if isinstance(names, list) and len(names) == len(values) else values
    return {str(name): value for name, value in zip(shown_names, values, strict=True)}


def _value(name: str, schema: Json, labels: list[str]) -> Any:
    choices, kind = _choices(schema), schema.get("type")
    if kind == "array":
        return [choices.get(label, label) for label in labels]
    [label, *more] = labels
    if more:
        raise AnswerError(f"answers: {name!r} takes one answer")
    if label in choices:
        return choices[label]
    try:
        value = {"integer": int, "number": float}.get(str(kind), str)(label)
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise AnswerError(f"answers: {name!r} is no {kind}") from None
    return value
