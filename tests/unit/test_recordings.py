"""Recordings of real operators, as our readers see them at every moment."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_kftrain.job_state import GONE, JobState, Phase, read_state
from airflow_kftrain.kinds import find_kind
from airflow_kftrain.monitoring.decisions import Decision, Verdict, decide
from airflow_kftrain.monitoring.pods import PodState, read_pod
from airflow_kftrain.monitoring.queues import read_queue_state
from airflow_kftrain.monitoring.report import write_report
from airflow_kftrain.monitoring.text import WIDTH, wrapped
from airflow_kftrain.specs.timeouts import Timeouts
from tests.recordings import FOLDER, Recording, View, read

FILES = sorted(FOLDER.glob("*.jsonl"))

_STEPS = {
    Phase.QUEUED: 0,
    Phase.STARTING: 0,
    Phase.RUNNING: 1,
    Phase.RESTARTING: 1,
    Phase.SUCCEEDED: 2,
    Phase.FAILED: 2,
    Phase.GONE: 2,
}
_FINAL = {"Succeeded": Phase.SUCCEEDED, "Failed": Phase.FAILED}


class Moment:
    """The view of a job at one moment, read after all earlier ones."""

    def __init__(self, recording: Recording, view: View, before: JobState | None) -> None:
        self.kind = find_kind(recording.api_version, recording.kind)
        self.job = view.job
        self.now = view.now
        state = GONE if view.job is None else read_state(self.kind, view.job)
        self.state = state.after(before)
        pods: list[PodState] = [read_pod(self.kind, pod) for pod in view.pods]
        queue = read_queue_state(view.workloads)
        self.decision: Decision = decide(
            self.kind, self.state, pods, Timeouts(), view.now, queue=queue
        )
        self.report = write_report(
            self.kind, self.state, pods, decision=self.decision, events=view.events
        )

    def __str__(self) -> str:
        return f"{self.now:%M:%S} {self.state.phase.name}"


def moments_of(recording: Recording) -> list[Moment]:
    """From the creation of the job on."""
    moments: list[Moment] = []
    state = None
    for view in recording.views():
        moments.append(Moment(recording, view, state))
        state = moments[-1].state
    return moments


def end(phase: Phase) -> Phase | None:
    """Succeeded or failed; None for an unfinished job."""
    return phase if phase in _FINAL.values() else None


Check = Callable[[Recording, list[Moment]], Iterator[str]]
"""Describes what is wrong."""


def phases_do_not_step_back(recording: Recording, moments: list[Moment]) -> Iterator[str]:
    for earlier, later in zip(moments, moments[1:], strict=False):
        before, after = earlier.state.phase, later.state.phase
        suspended = after is Phase.QUEUED and _STEPS[before] < _STEPS[Phase.GONE]
        if not suspended and _STEPS[after] < _STEPS[before]:
            yield f"from {earlier} to {later}"


def who_comes_late_reads_the_same_verdict(
    recording: Recording, moments: list[Moment]
) -> Iterator[str]:
    """A task that starts again has no earlier state to rely on."""
    verdict = _FINAL.get(recording.verdict)
    ended = False
    for moment in moments:
        if moment.job is not None:
            phase = read_state(moment.kind, moment.job).phase
            ended = ended or phase is verdict
            if end(phase) is not (verdict if ended else None):
                yield f"{moment}: {phase.name}"
    if verdict and not ended:
        yield f"{verdict.name} is never read"


def no_moment_has_a_wrong_verdict(recording: Recording, moments: list[Moment]) -> Iterator[str]:
    for moment in moments:
        found = end(moment.state.phase)
        if found:
            wrong = found is not _FINAL.get(recording.verdict)
        else:
            wrong = moment.decision.verdict is not Verdict.WAIT and recording.verdict == "Succeeded"
        if wrong:
            yield f"{moment}: {moment.decision}"


def the_end_has_the_right_verdict(recording: Recording, moments: list[Moment]) -> Iterator[str]:
    if end(moments[-1].state.phase) is not _FINAL.get(recording.verdict):
        yield str(moments[-1])


def every_report_opens_with_the_decision_and_gives_advice_where_a_task_would_fail(
    recording: Recording, moments: list[Moment]
) -> Iterator[str]:
    for moment in moments:
        lines = moment.report.split("\n")
        fails = moment.decision.verdict not in (Verdict.WAIT, Verdict.SUCCEEDED)
        if lines[0] != moment.decision.words:
            yield f"{moment}: {lines[0]}"
        if lines[-1].startswith("Retry: ") is not fails:
            yield f"{moment}: {moment.decision.verdict.name}, {lines[-1]}"


def the_report_at_the_end_is_as_written(
    recording: Recording, moments: list[Moment]
) -> Iterator[str]:
    written = (FOLDER / f"{recording.name}.txt").read_text(encoding="utf-8").splitlines()
    report = wrapped(moments[-1].report).split("\n")
    yield from (line for line in report if len(line) > WIDTH)
    yield from difflib.unified_diff(written, report, "as written", "now", lineterm="")


CHECKS: list[Check] = [
    phases_do_not_step_back,
    who_comes_late_reads_the_same_verdict,
    no_moment_has_a_wrong_verdict,
    the_end_has_the_right_verdict,
    every_report_opens_with_the_decision_and_gives_advice_where_a_task_would_fail,
    the_report_at_the_end_is_as_written,
]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_recording_is_read_right_at_every_moment(
    file: Path, request: pytest.FixtureRequest
) -> None:
    recording = read(file)
    moments = moments_of(recording)
    if request.config.getoption("--write-golden"):
        file.with_suffix(".txt").write_text(f"{wrapped(moments[-1].report)}\n", encoding="utf-8")
    faults = [f"{check.__name__}: {each}" for check in CHECKS for each in check(recording, moments)]
    assert not faults, "\n".join(faults)


def test_every_report_belongs_to_a_recording() -> None:
    assert {file.stem for file in FOLDER.glob("*.txt")} == {file.stem for file in FILES}


def test_a_recording_that_was_cut_can_be_read(tmp_path) -> None:
    """Every prefix of a recording is a recording."""
    whole = FILES[0].read_text(encoding="utf-8").splitlines()
    file = tmp_path / "cut.jsonl"
    file.write_text("\n".join(whole[:3]), encoding="utf-8")
    assert len([*read(file).views()]) == 2
