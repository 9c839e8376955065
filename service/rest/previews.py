"""``/preview``: the first records of a source with the verdicts on them, for a config that need not run anywhere."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from service.rest import bodies
from service.rest.openapi import reference
from service.rest.ports import PREVIEW_RECORDS_MAX, Surface
from service.rest.routes import Access, Answer, Route
from service.rest.secrets import ConfigSecrets


@dataclass(frozen=True, slots=True, eq=False)
class PreviewRoutes:
    """Handler of ``/preview``."""

    surface: Surface
    secrets: ConfigSecrets

    def routes(self) -> tuple[Route, ...]:
        """The one route, for the table of routes."""
        return (
            Route(
                method="POST",
                path="/preview",
                handle=self.preview,
                about=(
                    "Fetch the first records of a source by its config, and say what would be written of each. Nothing "
                    f"is written, registered or remembered. At most {PREVIEW_RECORDS_MAX} records."
                ),
                # It runs the code of a class, and asks the outside with secrets of the worker's providers.
                access=Access.ADMIN,
                tag="plugins",
                body=reference("PreviewInput"),
                answers=(Answer(200, "The records, also where the source failed after some.", reference("Preview")),),
                errors={
                    400: "The config is invalid, that of a sink, or of a source that cannot be read twice.",
                    409: "Other previews are under way; try again.",
                },
            ),
        )

    async def preview(self, request: web.Request) -> web.Response:
        """Answer 200 with what ``headrace preview --json`` prints."""
        given, records_max = bodies.parse_preview(await bodies.read_body(request))
        config = self.secrets.restored(given.get("name") or "", given)
        known = {key: value for key, value in config.items() if value is not None}
        return bodies.json_answer(await self.surface.present_previews.preview(known, records_max=records_max))
