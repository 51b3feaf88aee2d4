"""`turnwire doctor`: examines a database, and repairs what can be recomputed."""

from pathlib import Path
from typing import Any

import msgspec
from rich.table import Column

from turnwire.api.wire.codec import ProtoCodec
from turnwire.cli.operator.event_frames import ProtoFrames
from turnwire.cli.operator.output import print_error, print_json, print_line, print_table
from turnwire.cli.operator.progress import ExaminationBar, progress_bar
from turnwire.domain.errors import StorageError
from turnwire.ports.clock import utc_now
from turnwire.storage.sqlite.care.examination import Examiner
from turnwire.storage.sqlite.care.findings import Report, Summary
from turnwire.storage.sqlite.care.repair import Repairs, repair

_COLUMNS = (
    Column("problem", width=20),
    Column("severity", width=8),
    Column("count", width=9, justify="right"),
    Column("can be repaired", width=15, justify="right"),
)


def run_doctor(path: Path, *, fix: bool, as_json: bool) -> int:
    """Examines a database and prints what is wrong.

    Returns:
        The exit code: 0 when nothing is wrong, or nothing any more; 1 when something is; 2 when the file cannot be
        examined, or is to be repaired while a server has it open.
    """
    try:
        with progress_bar() as bar:
            bar.begin("examining pages")
            examiner = Examiner(ProtoCodec(), ProtoFrames(), ExaminationBar(bar))
            if fix:
                done = repair(path, examiner, utc_now(), bar.show)
            else:
                report = examiner.examine(path)
                done = Repairs(before=report, after=report, copy="")
    except StorageError as error:
        print_error(error.message)
        return 2
    if as_json:
        print_json(_as_json(done))
    else:
        _print(done)
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


def _print_findings(title: str, findings: tuple[Summary, ...]) -> None:
    if not findings:
        return
    print_line(title, "bold")
    print_table(_COLUMNS, ((f.name, f.severity, str(f.count), str(f.repairable or "no")) for f in findings))
    for finding in findings:
        more = ", ..." if finding.count > len(finding.first) else ""
        print_line(f"{finding.name}: {finding.meaning}")
        print_line(f"  {', '.join(finding.first)}{more}", "dim")


def _conclusion(report: Report) -> str:
    rows = ", ".join(f"{count} {table}" for table, count in report.rows.items())
    examined = f"{report.path}: schema {report.schema_version}"
    if not report.is_complete:
        return f"{examined}; the contents were not examined."
    if report.is_clean:
        return f"{examined}, {rows}: nothing is wrong."
    hint = "`turnwire doctor --fix` repairs what can be repaired." if report.is_repairable else "Restore a backup."
    return f"{examined}, {rows}: see above. {hint}"
