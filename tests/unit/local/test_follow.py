"""Following a collection on a server that behaves as badly as API servers can."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from kftrain_local.api_client import ApiClient, ApiError, ApiUnreachable, Cluster

Answer = Callable[[web.Request], Any]


def an_object(name: str, version: int, size: int = 0) -> dict[str, Any]:
    metadata = {"name": name, "resourceVersion": str(version), "annotations": {"x": "x" * size}}
    return {"metadata": metadata}


def a_list(version: int, *items: dict[str, Any], token: str = "") -> web.Response:
    metadata = {"resourceVersion": str(version), "continue": token}
    return web.json_response({"metadata": metadata, "items": items})


def events(*entries: tuple[str, dict[str, Any]], cut: bool = False) -> web.Response:
    lines = "".join(json.dumps({"type": kind, "object": found}) + "\n" for kind, found in entries)
    return web.Response(text=lines + ('{"type": "ADD' if cut else ""))


async def _follow(answers: list[Any], wanted: int) -> tuple[list[tuple[str, Any]], list[str]]:
    """What a follower of that server sees, and its requests."""
    asked: list[str] = []

    async def handle(request: web.Request) -> Any:
        query = request.query
        asked.append(
            f"watch {query['resourceVersion']}"
            if "watch" in query
            else f"list {query.get('continue', '')}".strip()
        )
        if not answers:
            await asyncio.Event().wait()
        return answers.pop(0)

    app = web.Application()
    app.router.add_get("/prefix/things", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    seen: list[tuple[str, Any]] = []
    try:
        server = f"http://127.0.0.1:{runner.addresses[0][1]}/prefix"
        async with ApiClient(Cluster(server)) as api:
            async for kind, found in api.follow("/things"):
                many = isinstance(found, list)
                names = [o["metadata"]["name"] for o in (found if many else [found])]
                seen.append((kind, names))
                if len(seen) == wanted:
                    break
    finally:
        await runner.cleanup()
    return seen, asked


def follow(answers: list[Any], wanted: int) -> tuple[list[tuple[str, Any]], list[str]]:
    return asyncio.run(asyncio.wait_for(_follow(answers, wanted), 60))


def test_it_lists_in_pages_then_watches_and_resumes_where_it_was() -> None:
    seen, asked = follow(
        [
            a_list(5, an_object("a", 1), token="more"),
            a_list(5, an_object("b", 2)),
            events(("ADDED", an_object("c", 6)), ("BOOKMARK", an_object("", 9))),
            events(("DELETED", an_object("a", 10, size=300_000))),
        ],
        3,
    )
    assert seen == [("LISTED", ["a", "b"]), ("ADDED", ["c"]), ("DELETED", ["a"])]
    assert asked == ["list", "list more", "watch 5", "watch 9"]


@pytest.mark.parametrize(
    "expired",
    [
        lambda: events(("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})),
        lambda: web.json_response({"kind": "Status", "reason": "Expired"}, status=410),
        lambda: web.Response(status=500, text="boom"),
    ],
)
def test_it_lists_again_when_the_version_has_expired(expired: Callable[[], Any]) -> None:
    seen, asked = follow([a_list(5), expired(), a_list(9, an_object("a", 8))], 2)
    assert seen == [("LISTED", []), ("LISTED", ["a"])]
    assert asked == ["list", "watch 5", "list"]


def test_a_torn_line_is_asked_for_again() -> None:
    answers = [
        a_list(5),
        events(("ADDED", an_object("a", 6)), cut=True),
        web.Response(text="<html>a proxy</html>\n"),
        events(("ADDED", an_object("b", 7))),
    ]
    seen, asked = follow(answers, 3)
    assert seen[1:] == [("ADDED", ["a"]), ("ADDED", ["b"])]
    assert asked == ["list", "watch 5", "watch 6", "watch 6"]


def test_a_list_that_fails_is_tried_again() -> None:
    seen, asked = follow([web.Response(status=503), a_list(1)], 1)
    assert seen == [("LISTED", [])]
    assert asked == ["list", "list"]


def test_a_refusal_keeps_code_reason_and_text() -> None:
    async def work() -> None:
        async def refuse(request: web.Request) -> web.Response:
            assert json.loads(await request.text()) == {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": {"uid": "u"},
                "gracePeriodSeconds": 0,
            }
            body = {"kind": "Status", "reason": "Conflict", "message": "another uid"}
            return web.json_response(body, status=409)

        app = web.Application()
        app.router.add_delete("/thing", refuse)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            async with ApiClient(Cluster(f"http://127.0.0.1:{runner.addresses[0][1]}")) as api:
                with pytest.raises(ApiError, match="another uid") as caught:
                    await api.delete("/thing", uid="u", grace=0)
            assert (caught.value.code, caught.value.reason) == (409, "Conflict")
        finally:
            await runner.cleanup()

    asyncio.run(work())


def test_an_error_does_not_tell_the_path_of_a_server() -> None:
    async def work() -> None:
        async with ApiClient(Cluster("http://127.0.0.1:1/secret")) as api:
            with pytest.raises(ApiUnreachable, match="http://127.0.0.1:1 does not") as caught:
                await api.get("/version")
            assert "secret" not in str(caught.value)

    asyncio.run(work())
