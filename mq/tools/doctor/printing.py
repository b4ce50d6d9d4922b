"""An examination as a table for people, and as one JSON document for programs."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from mq.tools.doctor.examine import Examination
from mq.tools.doctor.findings import Finding, Level, exit_code, worst
from mq.tools.mqctl.printing import Printer, shown

_COLUMNS = ("level", "probe", "found", "what helps")
_STYLES = {
    Level.OK: "green",
    Level.NOTE: "cyan",
    Level.WARN: "yellow",
    Level.UNKNOWN: "magenta",
    Level.WRONG: "bold red",
}


def print_examination(examined: Examination, printer: Printer) -> None:
    """The findings, then what they come to."""
    if printer.as_json:
        printer.document(as_document(examined))
        return
    if printer.is_terminal:
        printer.console().print(_table(examined.findings))
    else:
        printer.table(_COLUMNS, [_cells(finding) for finding in examined.findings])
    conclusion = examined.conclusion
    printer.line(f"durability: {conclusion.durability}")
    printer.line(f"clustering: {conclusion.clustering}")
    for why in conclusion.why:
        printer.line(f"because: {why}")
    for setting in conclusion.settings:
        printer.line(f"set: {setting}")
    if examined.swept:
        printer.line(f"swept: {examined.swept} left by a doctor that was killed")


def as_document(examined: Examination) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "root": examined.root,
        "second_mount": examined.second,
        "level": worst(finding.level for finding in examined.findings).value,
        "exit_code": exit_code(examined.findings),
        "durability": examined.conclusion.durability,
        "clustering": examined.conclusion.clustering,
        "because": list(examined.conclusion.why),
        "settings": list(examined.conclusion.settings),
        "leftovers_swept": examined.swept,
        "findings": [
            {
                "probe": finding.probe,
                "level": finding.level.value,
                "found": finding.says,
                "helps": finding.do or None,
                "facts": dict(finding.facts),
            }
            for finding in examined.findings
        ],
    }


def _cells(finding: Finding) -> tuple[str, str, str, str | None]:
    return finding.level.value, finding.probe, finding.says, finding.do or None


def _table(findings: Sequence[Finding]) -> Table:
    """What helps stands below what was found: few have it."""
    table = Table(*_COLUMNS[:3], box=box.SIMPLE_HEAD, pad_edge=False)
    for finding in findings:
        level, probe, says = (shown(cell) for cell in _cells(finding)[:3])
        found = Text(says)
        if finding.do:
            found.append(f"\n-> {shown(finding.do)}", "bold")
        table.add_row(Text(level, _STYLES[finding.level]), Text(probe), found)
    return table
