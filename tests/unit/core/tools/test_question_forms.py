"""Forms of questions."""

import pytest

from tests.support.fakes.domain_values import make_question
from turnwire.core.tools.question_forms import MAX_CONTENT_BYTES, problem_of_content, problem_of_form, problem_of_url
from turnwire.domain.conversation.questions import SchemaForm

FIELDS = [
    '{"type":"string","minLength":3,"maxLength":50,"format":"email","default":"a@b.c","title":"T","description":"D"}',
    '{"type":"string","enum":["a","b"],"enumNames":["A","B"]}',
    '{"type":"string","oneOf":[{"const":"a","title":"A"}]}',
    '{"type":"number","minimum":0,"maximum":5}',
    '{"type":"integer"}',
    '{"type":"boolean","default":false}',
    '{"type":"array","minItems":1,"items":{"type":"string","enum":["a"]}}',
    '{"type":"array","items":{"anyOf":[{"const":"a","title":"A"}]}}',
]
NO_FIELDS = [
    "7",
    "{}",
    '{"type":"object"}',
    '{"type":["string","null"]}',
    '{"type":"array","items":{"type":"object"}}',
    '{"type":"string","$ref":"#/x"}',
    '{"type":"string","enum":[]}',
    '{"type":"string","enum":[1]}',
]


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_of_the_protocol_can_be_asked(field: str) -> None:
    """Texts, numbers, yes or no, and choices."""
    assert problem_of_form(f'{{"type":"object","properties":{{"a":{field}}},"required":["a"]}}') == ""


@pytest.mark.parametrize("field", NO_FIELDS)
def test_no_other_field_can(field: str) -> None:
    """Nothing nested, nothing that refers elsewhere; the property is named."""
    assert "'a'" in problem_of_form(f'{{"type":"object","properties":{{"a":{field}}}}}')


@pytest.mark.parametrize("schema", ["", "[]", "7", '{"type":"string"}', '{"type":"object","properties":7}', "[" * 9999])
def test_a_form_is_an_object(schema: str) -> None:
    """Whatever a server sends instead is refused."""
    assert problem_of_form(schema)


async def test_what_is_filled_in_has_a_size() -> None:
    """In bytes, up to the bound, inclusive; white space counts."""
    question = make_question(form=SchemaForm('{"type":"object","properties":{"a":{"type":"string"}}}'))
    content = '{"a":"é"}'
    content += " " * (MAX_CONTENT_BYTES - len(content.encode()))
    assert await problem_of_content(question, content) == ""
    assert str(MAX_CONTENT_BYTES) in await problem_of_content(question, content + " ")


@pytest.mark.parametrize(
    "url", ["https://example.com/a?b=c", "http://localhost:8000/", "http://127.0.0.1/", "http://[::1]:80/"]
)
def test_addresses_that_can_be_shown(url: str) -> None:
    """Https anywhere, http on this machine."""
    assert problem_of_url(url) == ""


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "http://example.com/",
        "http://localhost.example.com/",
        "javascript:alert(1)",
        "https://bank.example@evil.example/",
        "https://exa mple.com/",
        "https://example.com/\n",
        "https://exämple.com/",
        "https://example.com:99999/",
        "https://example.com/" + "x" * 2048,
    ],
)
def test_addresses_that_cannot(url: str) -> None:
    """Other schemes, other machines, user names, characters that hide something, and long ones."""
    assert problem_of_url(url)
