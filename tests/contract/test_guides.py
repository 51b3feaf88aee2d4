"""The programs that the guides print do what the guides say of them, against a server with the page's configuration."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers.serving import serving

GUIDES = Path(__file__).parents[2] / "docs/guides"


def blocks(page: str, language: str) -> list[str]:
    """Returns the code blocks of a guide."""
    text = (GUIDES / f"{page}.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "printed"),
    [
        ("approvals-ui", ["asks: erase", "says: Done."]),
        ("resumable-ui", ["sent once: True", "complete: True 60"]),
        ("budgets", ["Hello", "BUDGET_EXHAUSTED 40 words", "BUDGET_EXHAUSTED 0 words", "50 tokens, 9.2e-05 USD"]),
    ],
)
def test_programs_print_what_the_guide_says(page: str, printed: list[str], tmp_path: Path) -> None:
    """One line after the other begins with, or has, what is expected."""
    (program,) = blocks(page, "python")
    (tmp_path / "program.py").write_text(program)
    with serving(tmp_path, "\n".join(blocks(page, "toml"))) as address:
        command = [sys.executable, "program.py", address]
        done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == len(printed), lines
    assert [line for line, expected in zip(lines, printed, strict=True) if expected not in line] == []


@pytest.mark.slow
def test_the_tests_of_the_guide_pass(tmp_path: Path) -> None:
    """They are run as they stand, by a pytest of their own."""
    (program,) = blocks("testing", "python")
    (tmp_path / "test_frontend.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_frontend.py"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_the_signature_of_slack_is_computed_as_slack_does() -> None:
    """With the request, the secret and the signature that Slack's own documentation gives."""
    (program,) = blocks("slack-bridge", "python")
    names: dict[str, object] = {}
    exec(program, names)  # our own page
    is_from_slack = names["is_from_slack"]
    assert callable(is_from_slack)
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
        b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com"
        b"%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    secret = "8f742231b10e8888abcd99yyyzzz85a5"
    signature = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    assert is_from_slack(secret, "1531420618", signature, body, now=1531420618.0)
    assert not is_from_slack(secret, "1531420618", signature, body + b"&", now=1531420618.0)
    assert not is_from_slack(secret, "1531420618", signature, body)
    assert not is_from_slack(secret, "", signature, body)
