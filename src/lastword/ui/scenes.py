"""The scenes that are on, one for each visitor."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict

from fastapi import HTTPException

from lastword.ui.scene import OVER, Scene

_MOST_SCENES = 64


class Scenes:
    """Those that are on; the one that was left longest goes when there are too many."""

    def __init__(self) -> None:
        self._on: OrderedDict[str, Scene] = OrderedDict()
        self._lock = threading.Lock()

    def new(self, now_ms: int) -> Scene:
        scene = Scene(secrets.token_hex(8), now_ms)
        with self._lock:
            self._on[scene.id] = scene
            left = [self._on.popitem(last=False)[1] for _ in range(len(self._on) - _MOST_SCENES)]
        for other in left:
            other.close()
        return scene

    def get(self, scene_id: str) -> Scene:
        with self._lock:
            if scene_id not in self._on:
                raise HTTPException(404, OVER)
            self._on.move_to_end(scene_id)
            return self._on[scene_id]

    def close(self) -> None:
        with self._lock:
            scenes, self._on = list(self._on.values()), OrderedDict()
        for scene in scenes:
            scene.close()
