"""`turnwire config`: checks a configuration, and shows what is in effect."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from turnwire.cli.output import print_error, print_json, print_line
from turnwire.cli.visible_text import visible
from turnwire.config.configuration import Config, load_config, open_document, read_config
from turnwire.config.document import ConfigError
from turnwire.config.review.effective import effective_values
from turnwire.config.review.problems import ConfigProblem, Review, review_config
from turnwire.config.review.secrets import Masking
from turnwire.config.review.toml import written_toml


def run_check(path: Path | None, environ: Mapping[str, str], options: Mapping[str, str], *, as_json: bool) -> int:
    """Prints all problems of a configuration. Returns the exit code: 0 when it is valid, else 2."""
    review = review_config(path, environ, options)
    if not review.problems:
        review = replace(review, problems=_problems_of_certificates(load_config(path, environ, options), review.file))
    if as_json:
        print_json({"valid": not review.problems, **msgspec.to_builtins(review)})
    else:
        _print(review)
    return 2 if review.problems else 0


def run_show(path: Path | None, environ: Mapping[str, str], options: Mapping[str, str], *, as_json: bool) -> int:
    """Prints the configuration that is in effect. Returns the exit code: 0, or 2 when it is not valid."""
    try:
        document = open_document(path, environ, options)
        effective = effective_values(document, read_config(document), environ)
    except ConfigError as error:
        print_error(Masking(environ).text(str(error)))
        return 2
    if as_json:
        file = None if document.file is None else str(document.file)
        print_json({"file": file, "values": effective.values, "sources": effective.sources})
    else:
        print(visible(written_toml(effective.values, effective.sources)))
    return 0


def _problems_of_certificates(config: Config, file: str | None) -> tuple[ConfigProblem, ...]:
    """Reads the files of `[tls]` and `[cluster]`, which keep a server from starting."""
    tls, cluster = config.tls, config.cluster
    if (tls.cert or cluster.cert) is None:
        return ()
    from turnwire.api.grpc.tls import (  # noqa: PLC0415 - imports gRPC
        CLUSTER_KEYS,
        TLS_KEYS,
        ServerCertificates,
        UnusableCertificates,
    )

    problems = []
    for cert, key, ca, keys in (
        (tls.cert, tls.key, tls.client_ca, TLS_KEYS),
        (cluster.cert, cluster.key, cluster.ca, CLUSTER_KEYS),
    ):
        try:
            if cert and key:
                ServerCertificates(cert, key, ca, keys)
        except UnusableCertificates as error:
            source = str(file)
            problems.append(ConfigProblem(error.key, source, error.problem, f"{source}: {error}"))
    return tuple(problems)


def _print(review: Review) -> None:
    for problem in review.problems:
        print_line(problem.message)
    if not review.problems:
        print_line(f"{review.file or 'the default configuration'} is valid", "green")
    elif not review.is_complete:
        print_line("There may be more problems: correct these and check again.", "dim")
