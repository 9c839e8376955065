"""Pause, resume, stop and restart of connectors and tasks; bodies of these requests are not read."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from service.domain.cluster import RestartRequest
from service.domain.ids import TaskId
from service.domain.states import TargetState
from service.rest import bodies
from service.rest.openapi import FLAG, reference
from service.rest.ports import Surface
from service.rest.routes import Access, Answer, Query, Route

_MISSING = {404: "There is no such connector."}
_NOT_NOW = {**_MISSING, 409: "A rebalance is under way, or it is stopped; try again."}


@dataclass(frozen=True, slots=True, eq=False)
class LifecycleRoutes:
    """Handlers of requests that say what a connector should do."""

    surface: Surface

    def routes(self) -> tuple[Route, ...]:
        """Changes of what a connector should do, for the table of routes."""
        return (
            Route(
                method="PUT",
                path="/connectors/{connector}/pause",
                handle=self.pause,
                about="Pause a connector and its tasks; they keep what they hold.",
                access=Access.ADMIN,
                answers=(Answer(202, "It will be paused."),),
                errors=_MISSING,
            ),
            Route(
                method="PUT",
                path="/connectors/{connector}/resume",
                handle=self.resume,
                about="Resume a paused or stopped connector.",
                access=Access.ADMIN,
                answers=(Answer(202, "It will be resumed."),),
                errors=_MISSING,
            ),
            Route(
                method="PUT",
                path="/connectors/{connector}/stop",
                handle=self.stop,
                about="Stop a connector: its tasks end, its config and offsets stay.",
                access=Access.ADMIN,
                answers=(Answer(204, "It will be stopped."),),
                errors=_NOT_NOW,
            ),
            Route(
                method="POST",
                path="/connectors/{connector}/restart",
                handle=self.restart,
                about="Restart a connector, and with includeTasks its tasks.",
                access=Access.ADMIN,
                query=(
                    Query("includeTasks", "Whether tasks are restarted too.", FLAG),
                    Query("onlyFailed", "Whether only what is FAILED is restarted.", FLAG),
                ),
                answers=(
                    Answer(202, "What will be restarted is shown RESTARTING.", reference("ConnectorStatus")),
                    Answer(204, "The connector alone was restarted."),
                ),
                errors=_NOT_NOW,
            ),
            Route(
                method="POST",
                path="/connectors/{connector}/tasks/{task}/restart",
                handle=self.restart_task,
                about="Restart a task.",
                access=Access.ADMIN,
                answers=(Answer(204, "It was restarted."),),
                errors={**_NOT_NOW, 404: "There is no such connector or task."},
            ),
        )

    async def pause(self, request: web.Request) -> web.Response:
        """Answer 202: the connector will be paused."""
        return await self._set(request, TargetState.PAUSED, status=202)

    async def resume(self, request: web.Request) -> web.Response:
        """Answer 202: the connector will be resumed."""
        return await self._set(request, TargetState.STARTED, status=202)

    async def stop(self, request: web.Request) -> web.Response:
        """Answer 204: the connector will be stopped."""
        return await self._set(request, TargetState.STOPPED, status=204)

    async def _set(self, request: web.Request, state: TargetState, *, status: int) -> web.Response:
        await self.surface.present_herder.changes.set_target(request.match_info["connector"], state)
        return bodies.empty_answer(status)

    async def restart(self, request: web.Request) -> web.Response:
        """204 for the connector alone, 202 and the plan where anything more was asked."""
        name = request.match_info["connector"]
        has_tasks = bodies.parse_flag(request.query.get("includeTasks"))
        is_failed_only = bodies.parse_flag(request.query.get("onlyFailed"))
        if not (has_tasks or is_failed_only):
            await self.surface.present_herder.restarts.connector(name)
            return bodies.empty_answer(204)
        restart = RestartRequest(name, is_failed_only=is_failed_only, has_tasks=has_tasks)
        plan = await self.surface.present_herder.restarts.plan(restart)
        return bodies.json_answer(bodies.connector_status(plan), status=202)

    async def restart_task(self, request: web.Request) -> web.Response:
        """Answer 204 once the owner of the task was asked to restart it."""
        task = TaskId(request.match_info["connector"], int(request.match_info["task"]))
        await self.surface.present_herder.restarts.task(task)
        return bodies.empty_answer(204)
