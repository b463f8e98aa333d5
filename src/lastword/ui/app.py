"""The page as one application, for any ASGI server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.staticfiles import StaticFiles

from lastword import __version__
from lastword.cleaner.metrics import PassTotals
from lastword.store import Store
from lastword.ui import answers, api, pages, records_page, scene_api, topic_page
from lastword.ui.cleanings import Cleanings, NewRunner
from lastword.ui.counts import Counts
from lastword.ui.guard import Access, Guard
from lastword.ui.latest_views import LatestViews
from lastword.ui.parts import Parts
from lastword.ui.render import HERE
from lastword.ui.scans import Scans
from lastword.ui.scenes import Scenes
from lastword.ui.watch import Watch


def make_app(store: Store, access: Access, new_runner: NewRunner) -> FastAPI:
    """The application for a store. `new_runner` makes what cleanings run on."""
    watch, scans = Watch(store.base), Scans()
    parts = Parts(
        store=store,
        access=access,
        watch=watch,
        scans=scans,
        counts=Counts(store.base, scans),
        latest_views=LatestViews(store.base, scans),
        cleanings=Cleanings(store, new_runner, watch.forget),
        scenes=Scenes(),
        totals=PassTotals(),
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        parts.begin()
        yield
        parts.close()

    app = FastAPI(
        title="lastword",
        version=__version__,
        docs_url=None,  # these pages load their scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        middleware=[Middleware(Guard, access=access)],
    )
    app.state.parts = parts
    for routes in (api, scene_api, pages, topic_page, records_page):
        app.include_router(routes.router)
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    answers.install(app)
    return app
