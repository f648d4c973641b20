"""What the demo shows: a DAG run from its start to its links."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote

import aiohttp

from demo.airflow import Airflow, DemoFailed
from kftrain_local.api_client import ApiClient, core

DAG = "demo"
_PATIENCE = 90
_LONGEST_RUN = 180
_LOOK_EVERY = 0.5
_ROLE, _LEADERS = "training.kubeflow.org/job-role", ("master", "launcher")

Say = Callable[[str], None]
Object = dict[str, Any]


class Run(NamedTuple):
    """One run of the DAG."""

    airflow: Airflow
    path: str
    url: str

    async def tasks(self) -> list[Object]:
        found = (await self.airflow.get(f"{self.path}/taskInstances"))["task_instances"]
        return sorted(found, key=lambda task: (task["start_date"] or "~", task["task_id"]))

    async def xcom(self, task: str, key: str) -> Any:
        place = f"{self.path}/taskInstances/{task}/xcomEntries/{key}"
        return ((await self.airflow.find(place)) or {}).get("value")

    async def links(self, task: str) -> dict[str, str | None]:
        answer = await self.airflow.get(f"{self.path}/taskInstances/{task}/links")
        return dict(answer["extra_links"])

    async def log(self, task: str) -> str:
        answer = await self.airflow.find(f"{self.path}/taskInstances/{task}/logs/1")
        if answer is None:
            return "  | no log: the task has not begun"
        return "\n".join(f"  | {line.get('event', line)}" for line in answer["content"][-40:])


async def start(airflow: Airflow) -> Run:
    """As soon as Airflow knows the DAG."""
    end = asyncio.get_running_loop().time() + _PATIENCE
    while await airflow.find(f"dags/{DAG}") is None:
        errors = (await airflow.get("importErrors"))["import_errors"]
        if errors:
            raise DemoFailed(f"The DAG cannot be imported:\n{errors[0]['stack_trace']}")
        if asyncio.get_running_loop().time() > end:
            raise DemoFailed(f"Airflow does not find the DAG.\n{airflow.log('dag-processor')}")
        await asyncio.sleep(_LOOK_EVERY)
    made = await airflow.post(f"dags/{DAG}/dagRuns", {"logical_date": None})
    run = quote(made["dag_run_id"], safe="")
    return Run(airflow, f"dags/{DAG}/dagRuns/{run}", f"{airflow.url}/dags/{DAG}/runs/{run}")


async def follow(run: Run, say: Say) -> None:
    """Prints the states and the progress of the tasks as they change, until the run has ended."""
    told: dict[str, str] = {}
    progress: dict[str, str] = {}
    end = asyncio.get_running_loop().time() + _LONGEST_RUN
    while asyncio.get_running_loop().time() < end:
        for task in await run.tasks():
            name, state = task["task_id"], task["state"] or "none"
            if state == "deferred" or told.get(name) == "deferred":
                words = _progress(await run.xcom(name, "kftrain"))
                if words != progress.get(name, ""):
                    progress[name] = words
                    say(f"task {name}: {words}")
            if told.get(name, "none") != state:
                told[name] = state
                where = ", its trigger waits for the job" if state == "deferred" else ""
                say(f"task {name}: {state}{where}")
        if told and (await run.airflow.get(run.path))["state"] in ("success", "failed"):
            return
        await asyncio.sleep(_LOOK_EVERY)
    logs = [f"{name}, {state}:\n{await run.log(name)}" for name, state in told.items()]
    raise DemoFailed("\n".join([f"The run has not ended after {_LONGEST_RUN} s.", *logs]))


def _progress(shown: Any) -> str:
    """In words, from what the task shows of its job in an XCom."""
    found = (shown or {}).get("progress")
    if not found:
        return ""
    metrics = [f"{name} {value:.6g}" for name, value in found["latest"].items()]
    step = "step {step} of {total} ({percent:g} %)".format(**found)
    return ", ".join([step, *metrics])


async def copy_logs(api: ApiClient, say: Say) -> None:
    """Prints the log of each job's leader, line by line, without the reports of its progress."""
    copies: dict[str, asyncio.Task[None]] = {}
    try:
        async for what, found in api.follow(core("", "pods")):
            for pod in found if what == "LISTED" else [found]:
                uid = pod["metadata"]["uid"]
                if uid not in copies and _leads(pod) and _has_begun(pod):
                    copies[uid] = asyncio.create_task(_copy_log(api, pod, say))
    finally:
        for copy in copies.values():
            copy.cancel()
        await asyncio.gather(*copies.values(), return_exceptions=True)


def _leads(pod: Object) -> bool:
    return (pod["metadata"].get("labels") or {}).get(_ROLE) in _LEADERS


def _has_begun(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Running", "Succeeded", "Failed")


async def _copy_log(api: ApiClient, pod: Object, say: Say) -> None:
    its = pod["metadata"]
    container = pod["spec"]["containers"][0]["name"]
    path = core(its["namespace"], "pods", its["name"], "log")
    async for line in api.lines(path, container=container, follow="true"):
        if '"kftrain"' not in line:
            say(f"[{its['name']}] {line}")


async def tell(run: Run, say: Say) -> bool:
    """Prints how it ended, and where to look at it. Returns whether everything is well."""
    good = True
    async with aiohttp.ClientSession() as session:
        for task in await run.tasks():
            name, state = task["task_id"], task["state"]
            say(f"{name}: {state} after {task['duration'] or 0:.1f} s")
            if state != "success":
                good = False
                say(await run.log(name))
                continue
            say(f"  return value  {json.dumps(await run.xcom(name, 'return_value'))}")
            for label, url in await _addresses(run, name):
                code = await _code(session, url)
                good = good and code == "200"
                say(f"  {label:<13} {url}  {code}")
    return good


async def _addresses(run: Run, task: str) -> list[tuple[str, str]]:
    found = [(name, url) for name, url in (await run.links(task)).items() if url]
    logs = await run.xcom(task, "log_links") or []
    logs = json.loads(logs) if isinstance(logs, str) else logs
    for each in logs:
        replica = [each["role"], *([] if each["index"] is None else [str(each["index"])])]
        found.append((f"Log {'-'.join(replica)}", each["url"]))
    if not found:
        raise DemoFailed(f"Task {task} has no links.")
    return found


async def _code(session: aiohttp.ClientSession, url: str) -> str:
    try:
        async with session.get(url, timeout=aiohttp.ClientTimeout(total=10)) as response:
            return str(response.status)  # the log of a running pod may have no end
    except (aiohttp.ClientError, asyncio.TimeoutError) as error:
        return f"cannot be fetched: {error!r}"
