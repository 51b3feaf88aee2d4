"""`turnwire doctor`: examines a database, and makes anew what can be computed."""

from pathlib import Path
from typing import Any

import msgspec

from turnwire.cli.output import print_error, print_json, print_line, print_table, progress_bar
from turnwire.domain.errors import StorageError
from turnwire.ports.clock import utc_now
from turnwire.storage.sqlite.care.doctor import Finding, Repairs, Report, examine, rebuild_search, repair

_COLUMNS = ("problem", "count", "can be repaired")

_COUNTED = ("sessions", "turns", "messages", "events", "files")


def run_doctor(path: Path, *, fix: bool, rebuilds_search: bool, as_json: bool) -> int:
    """Examines a database and prints what is wrong.

    Returns:
        The exit code: 0 when nothing is wrong, or nothing any more; 1 when something is; 2 when the file cannot be
        examined, or is to be changed while a server has it open.
    """
    try:
        with progress_bar() as bar:
            bar.begin("examining")
            if fix:
                done = repair(path, utc_now(), bar.show)
            else:
                report = examine(path)
                done = Repairs(before=report, after=report, copy="")
            if rebuilds_search:
                rebuild_search(path)
    except StorageError as error:
        print_error(error.message)
        return 2
    if as_json:
        print_json(_as_json(done))
    else:
        _print(done)
        if rebuilds_search:
            print_line("The next start of a server indexes all messages anew.")
    return 0 if done.after.is_clean else 1


def _as_json(done: Repairs) -> dict[str, Any]:
    report: dict[str, Any] = msgspec.to_builtins(done.after)
    return {
        "clean": done.after.is_clean,
        **report,
        "copy": done.copy or None,
        "before_repair": msgspec.to_builtins(done.before.findings) if done.copy else None,
    }


def _print(done: Repairs) -> None:
    if done.copy:
        print_line(f"The database as it was: {done.copy}")
        _print_findings("Found before the repair:", done.before.findings)
    report = done.after
    _print_findings("Found after the repair:" if done.copy else "Found:", report.findings)
    print_line(_conclusion(report), "green" if report.is_clean else "red")


def _print_findings(title: str, findings: tuple[Finding, ...]) -> None:
    if not findings:
        return
    print_line(title, "bold")
    print_table(_COLUMNS, [(f.name, str(f.count), str(f.repairable or "no")) for f in findings], _COLUMNS[1:])
    for finding in findings:
        more = ", ..." if finding.count > len(finding.first) else ""
        print_line(f"{finding.name}: {finding.meaning}")
        print_line(f"  {', '.join(finding.first)}{more}", "dim")


def _conclusion(report: Report) -> str:
    rows = ", ".join(f"{report.rows[table]} {table}" for table in _COUNTED if table in report.rows)
    examined = f"{report.path}: schema {report.schema_version}, {rows}"
    hint = "`turnwire doctor --fix` repairs what can be repaired." if report.is_repairable else "Restore a backup."
    if report.is_complete:
        return f"{examined}: nothing is wrong." if report.is_clean else f"{examined}: see above. {hint}"
    return f"{examined}; the counters were not examined." if report.is_clean else f"{examined}: see above. {hint}"
