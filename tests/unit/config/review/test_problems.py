"""All problems of a configuration are named, and none that only follows from another."""

from pathlib import Path

from turnwire.config.review.problems import Review, review_config


def review(text: str, environ: dict[str, str] | None = None, options: dict[str, str] | None = None) -> Review:
    """Reviews a file with a text."""
    Path("test.toml").write_text(text)
    return review_config(Path("test.toml"), environ or {}, options)


def keys(text: str) -> list[str]:
    """Returns the keys with problems; all have to be found."""
    found = review(text)
    assert found.is_complete
    return [problem.key for problem in found.problems]


def test_valid_configuration_has_no_problems() -> None:
    """With a file and without one."""
    assert review("[server]\n") == Review(file="test.toml", problems=(), is_complete=True)
    assert review_config(None, {}) == Review(file=None, problems=(), is_complete=True)


def test_every_problem_is_named_with_its_source() -> None:
    """Unknown names, wrong types, ranges, relations; of the file, a variable and an option."""
    found = review(
        """
        [nonsense]
        [server]
        color = "red"
        heartbeat_seconds = 0
        [compaction]
        keep = 0.9
        [agents.a]
        model = "no/model"
        [permissions]
        "fs.*" = "perhaps"
        [log]
        format = "text"
        """,
        {"TURNWIRE_LOG_LEVEL": "loud"},
        {"--listen": "here"},
    )
    assert found.is_complete
    assert {problem.key: problem.source for problem in found.problems} == {
        "nonsense": "test.toml",
        "server.color": "test.toml",
        "server.heartbeat_seconds": "test.toml",
        "server.listen": "--listen",
        "compaction.keep": "test.toml",
        "agents.a.model": "test.toml",
        'permissions."fs.*"': "test.toml",
        "log.level": "TURNWIRE_LOG_LEVEL",
    }
    [log] = [problem for problem in found.problems if problem.key == "log.level"]
    assert log.message == f"TURNWIRE_LOG_LEVEL: {log.problem}"


def test_what_refers_to_a_wrong_provider_is_not_wrong() -> None:
    """Nor is what is missing only because it was left out."""
    assert keys("""
        [providers.x]
        kind = "unknown"
        [providers.y]
        models = ["m"]
        [defaults]
        model = "x/one"
        fallback_models = ["y/two", "z/three"]
        [models."x/one"]
        color = 1
    """) == ["providers.x.kind", "providers.y.kind", 'models."x/one".color', "defaults.fallback_models[1]"]


def test_problems_that_hide_others_are_said_to() -> None:
    """A file that is no TOML, or a section that others depend on."""
    for text in ("[", "providers = 1"):
        found = review(text)
        assert (len(found.problems), found.is_complete) == (1, False)
    missing = review_config(Path("no.toml"), {})
    assert (missing.file, missing.problems[0].problem) == (
        "no.toml",
        "no.toml: cannot be read: No such file or directory",
    )


def test_name_that_cannot_be_stands_alone() -> None:
    """It ends the search, because its table cannot be replaced."""
    found = review('[providers."a b"]\nkind = "offline"\n')
    assert [problem.key for problem in found.problems] == ["providers.a b"]


def test_no_secret_is_in_a_problem() -> None:
    """Though it was pasted into a value."""
    found = review('[log]\nlevel = "sk-abcdefghijklmnop"\n[server]\nlisten = "hunter22"\n', {"MY_TOKEN": "hunter22"})
    assert len(found.problems) == 2
    assert not [problem for problem in found.problems if "sk-abc" in str(problem) or "hunter22" in str(problem)]


def test_a_section_that_a_method_needs_is_not_missing_because_of_its_problem() -> None:
    """A required key that is wrong is the only problem, not the whole section with it."""
    jwt = '[auth]\nmethods = ["jwt"]\n[auth.jwt]\nissuer = "a"\naudience = "b"\nkeys = "http://idp.example/keys"\n'
    assert [problem.key for problem in review(jwt).problems] == ["auth.jwt.keys"]
