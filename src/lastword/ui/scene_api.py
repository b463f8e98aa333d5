"""The JSON of the scene: a visitor's own topic, so that no token is asked for."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field

from lastword.ui.api import Body, problems
from lastword.ui.parts import Ui
from lastword.ui.scene import MOST_ADVANCE_MS, MOST_CHARS
from lastword.ui.scene_state import Phase, SceneState

router = APIRouter(prefix="/api/scene", responses=problems(400, 404, 413, 415))

SceneId = Annotated[str, Path(pattern="^[0-9a-f]{16}$")]


class ToSend(Body):
    """A record for the scene; without a value, a tombstone."""

    key: Annotated[str, Field(min_length=1, max_length=MOST_CHARS, pattern=r"^[^\x00-\x1f\x7f]+$")]
    value: Annotated[str, Field(max_length=MOST_CHARS, pattern=r"^[^\x00-\x1f\x7f]*$")] | None = (
        None
    )


class ToStep(Body):
    """The phase that the visitor sees, so that no other step is taken than the one that was meant."""

    phase: Phase | None = None


class Advance(Body):
    """How far to move the scene's clock."""

    ms: Annotated[int, Field(ge=1, le=MOST_ADVANCE_MS)]


@router.post("", status_code=201)
def new_scene(ui: Ui) -> SceneState:
    """Begin a scene: a topic of one's own."""
    return ui.scenes.new(ui.store.base.clock()).state()


@router.get("/{scene_id}")
def scene_state(ui: Ui, scene_id: SceneId) -> SceneState:
    """The scene as it is."""
    return ui.scenes.get(scene_id).state()


@router.post("/{scene_id}/send")
def send(ui: Ui, scene_id: SceneId, record: ToSend) -> SceneState:
    """Append a record."""
    return ui.scenes.get(scene_id).send(record.key, record.value)


@router.post("/{scene_id}/roll")
def roll(ui: Ui, scene_id: SceneId) -> SceneState:
    """Close the active segment."""
    return ui.scenes.get(scene_id).roll()


@router.post("/{scene_id}/advance")
def advance(ui: Ui, scene_id: SceneId, by: Advance) -> SceneState:
    """Move the clock."""
    return ui.scenes.get(scene_id).advance(by.ms)


@router.post("/{scene_id}/step")
def step(ui: Ui, scene_id: SceneId, seen: ToStep) -> SceneState:
    """Let the cleaner do what comes next."""
    return ui.scenes.get(scene_id).step(seen.phase)
